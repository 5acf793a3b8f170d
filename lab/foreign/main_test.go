package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

const (
	examples = "../../examples/python"
	ttl      = 3 * time.Second
	server   = "FENCELOCK_TEST_FOREIGN" // a process of the test that has it is a client of this server
)

func TestMain(m *testing.M) {
	if url := os.Getenv(server); url != "" {
		client(url)
		return
	}
	os.Exit(m.Run())
}

// client is a client that uses the library.
func client(url string) {
	engine, closing, err := open(context.Background(), url)
	if err != nil {
		panic(err)
	}
	defer closing()
	var lock *fencelock.Lock
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if words[0] == "release" {
			if lock.Release() == nil {
				fmt.Println("released")
			} else {
				fmt.Println("lost")
			}
			continue
		}
		length, _ := time.ParseDuration(words[2] + "ms")
		wait, _ := time.ParseDuration(words[3] + "ms")
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: length, Wait: wait})
		acquire := locks.Acquire
		if wait == 0 {
			acquire = locks.TryAcquire
		}
		if lock, err = acquire(context.Background(), words[1]); err != nil {
			fmt.Println("held")
			continue
		}
		fmt.Println("granted", lock.Token())
		go func(lock *fencelock.Lock) { // ends with the lock
			<-lock.Context().Done()
			if errors.Is(context.Cause(lock.Context()), fencelock.ErrLost) {
				fmt.Println("lost")
			}
		}(lock)
	}
}

// TestLibrary: a client that uses the library passes on PostgreSQL.
func TestLibrary(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t).DSN()
	passes(t, url, []string{"env", server + "=" + url, os.Args[0]})
}

func passes(t *testing.T, url string, command []string) {
	t.Helper()
	failed, err := judge(t.Context(), url, command, ttl, nil, func(line string) { t.Log(line) })
	if err != nil || len(failed) > 0 {
		t.Errorf("it fails: %v, %v", failed, err)
	}
}

// withRedis returns a Python that has redis-py, if there is one.
var withRedis = sync.OnceValue(func() string {
	for _, path := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(path, "-c", "import redis").Run() == nil {
			return path
		}
	}
	return ""
})

// python returns a Python that has redis-py, and a folder with the client of docs/protocol.md, in which an
// old text is replaced by a new one.
func python(t *testing.T, old, new string) (interpreter, folder string) {
	t.Helper()
	interpreter = withRedis()
	if interpreter == "" {
		t.Skip("there is no Python with redis-py: .ci/need languages")
	}
	folder, err := os.MkdirTemp("", "fencelock-foreign")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	lua, err := filepath.Abs("../../redislock/lua")
	if err != nil {
		t.Fatal(err)
	}
	found := old == ""
	for _, name := range []string{"redis_lock.py", "checked.py"} {
		b, err := os.ReadFile(filepath.Join(examples, name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(b), `pathlib.Path(__file__).parents[2] / "redislock/lua"`, "pathlib.Path("+strconv.Quote(lua)+")", 1)
		if old != "" && strings.Contains(text, old) {
			text, found = strings.Replace(text, old, new, 1), true
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Fatalf("the client has no %q", old)
	}
	return interpreter, folder
}

// TestPython: the client of docs/protocol.md passes.
func TestPython(t *testing.T) {
	t.Parallel()
	interpreter, folder := python(t, "", "")
	url := "redis://" + redistest.StartRedis(t).Addr()
	passes(t, url, []string{interpreter, "-B", filepath.Join(folder, "checked.py"), url})
}

// TestReplay: the client of docs/protocol.md sends the requests of docs/vectors.
func TestReplay(t *testing.T) {
	t.Parallel()
	interpreter, _ := python(t, "", "")
	if out, err := exec.Command(interpreter, "-B", filepath.Join(examples, "replay.py")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWrong: a client with one fault fails the checks that look for it.
func TestWrong(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.StartRedis(t).Addr()
	for fault, c := range map[string]struct{ old, new, fails string }{
		"invents tokens":                 {`f"granted {token}"`, `"granted 1"`, "acquire wait"},
		"does not wait":                  {`return "held"`, `return "granted 1"`, "held"},
		"enters before its turn":         {"poll = next_poll(blocked)", `return lock, owner, 2**60, end`, "queue"},
		"does not queue":                 {`"w" if wait else "-"`, `"-"`, "queue"},
		"leaves its request behind":      {`self.call("leave", lock, owner, desc, until)`, "pass", "held"},
		"does not renew":                 {"self.client.renew(*held, ttl)", "end + 60", "renew"},
		"does not report a loss":         {`print("lost", flush=True)`, "pass", "break"},
		"does not release":               {"self.client.release(*held)", "True", "acquire"},
		"keeps what it says it released": {"held, self.held = self.held, None", `return "released"`, "turn"},
		"asks for a longer lease":        {"ttl=ttl, wait", "ttl=ttl * 20, wait", "kill"},
		"acquires again after a loss":    {`                    self.held = None`, "                    self.client.r.set(held[0], 'mine', px=ttl)", "freeze"},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			interpreter, folder := python(t, c.old, c.new)
			var skip []string
			for _, other := range checks {
				if !slices.Contains(strings.Fields(c.fails), other.name) {
					skip = append(skip, other.name)
				}
			}
			failed, err := judge(t.Context(), url, []string{interpreter, "-B", filepath.Join(folder, "checked.py"), url}, ttl, skip, func(line string) { t.Log(line) })
			if err != nil || strings.Join(failed, " ") != c.fails {
				t.Errorf("the checks that fail are %v, want %s: %v", failed, c.fails, err)
			}
		})
	}
}
