//go:build unix

package engines_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

// writerVariable is set in the environment of a writer, to its writerTask.
const writerVariable = "FENCELOCK_TEST_WRITER"

// writerTask says what a writer does under its lock.
type writerTask struct {
	Store engines.Store
	File  string
	Text  string
	Deaf  bool // it has a maximum hold and ignores the end of its context
}

func TestMain(m *testing.M) {
	if text := os.Getenv(writerVariable); text != "" {
		write(text)
		return
	}
	os.Exit(m.Run())
}

// write is the program of a writer. It writes to a guarded file and prints "wrote". If it is deaf,
// it does the same again after each line that it reads, long after its context has ended, and
// prints "refused" if the guard has refused the write.
func write(text string) {
	var task writerTask
	check(json.Unmarshal([]byte(text), &task))
	engine, err := task.Store.Open()
	check(err)
	opts := fencelock.Options{TTL: 10 * time.Second}
	if task.Deaf {
		opts = fencelock.Options{TTL: time.Second, Grace: 500 * time.Millisecond, MaxHold: 2 * time.Second}
	}
	err = fencelock.New(engine, nil).With(opts).Do(context.Background(), "report", func(ctx context.Context) error {
		ctx = context.WithoutCancel(ctx)
		check(fence.ReplaceFile(ctx, task.File, []byte(task.Text), 0o600))
		fmt.Println("wrote")
		if !task.Deaf {
			return nil
		}
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			switch err := fence.ReplaceFile(ctx, task.File, []byte(task.Text+", late"), 0o600); {
			case errors.Is(err, fence.ErrStale):
				fmt.Println("refused")
			default:
				fmt.Println("wrote", err)
			}
		}
		return nil
	})
	if task.Deaf && (errors.Is(err, fencelock.ErrMaxHold) || errors.Is(err, fencelock.ErrLost)) { // a busy machine may lose it first
		err = nil
	}
	check(err)
}

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// start starts a writer. It returns its input and its output.
func (w writerTask) start(t *testing.T) (io.WriteCloser, *bufio.Scanner) {
	t.Helper()
	text, err := json.Marshal(w)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), writerVariable+"="+string(text)), os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // a writer ends with its input
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return in, bufio.NewScanner(out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLateWritesOfAProgram: of two programs that write through a guard, one ignores the end of its
// context at its maximum hold. Its late writes are refused.
func TestLateWritesOfAProgram(t *testing.T) {
	for _, kind := range []string{"redis", "redlock", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			task := writerTask{Store: engines.Start(t, kind, 10*time.Second), File: filepath.Join(t.TempDir(), "report"), Text: "first", Deaf: true}
			in, first := task.start(t)
			says(t, first, "wrote")
			task.Text, task.Deaf = "next", false
			_, next := task.start(t)
			says(t, next, "wrote")
			for range 3 {
				_, err := io.WriteString(in, "\n")
				must(t, err)
				says(t, first, "refused")
			}
			if text, err := os.ReadFile(task.File); err != nil || string(text) != "next" {
				t.Errorf("the file has %q, %v", text, err)
			}
		})
	}
}

// says fails the test unless a writer prints a line that begins with want.
func says(t *testing.T, out *bufio.Scanner, want string) {
	t.Helper()
	if !out.Scan() || !strings.HasPrefix(out.Text(), want) {
		t.Fatalf("the writer printed %q, %v; want %q", out.Text(), out.Err(), want)
	}
}
