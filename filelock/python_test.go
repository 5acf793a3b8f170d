package filelock_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/filelock"
)

// pythonWork adds to a counter under the lock, so that an addition is lost if another process
// holds the lock at the same time.
const pythonWork = `
import sys
job = Name(sys.argv[1], "job")
for _ in range(10):
    token = job.acquire(wait=300)
    count, last = pathlib.Path(sys.argv[2]).read_text().split()
    assert token > int(last), (token, last)
    pathlib.Path(sys.argv[2]).write_text(f"{int(count) + 1} {token}")
    assert not job.lost()
    job.release()
`

// TestPythonClient: the client in examples/python and this library exclude each other, and
// their tokens rise.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("no Python here")
	}
	client, err := os.ReadFile("../examples/python/file_lock.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	counter, locks := filepath.Join(dir, "counter"), filepath.Join(dir, "locks")
	if err := os.WriteFile(counter, []byte("0 0"), 0o600); err != nil {
		t.Fatal(err)
	}
	engine := filelock.New(locks, nil)
	locker := fencelock.New(engine, nil)
	add := func(ctx context.Context) error {
		text, err := os.ReadFile(counter)
		if err != nil {
			return err
		}
		count, last, _ := strings.Cut(string(text), " ")
		n, _ := strconv.Atoi(count)
		token, _ := fencelock.TokenFrom(ctx)
		if before, _ := strconv.ParseInt(last, 10, 64); token <= before {
			t.Errorf("token %d after %d", token, before)
		}
		return os.WriteFile(counter, []byte(strconv.Itoa(n+1)+" "+strconv.FormatInt(token, 10)), 0o600)
	}
	if err := locker.Do(t.Context(), "job", add); err != nil { // makes the directory
		t.Fatal(err)
	}
	type worker struct {
		cmd *exec.Cmd
		out bytes.Buffer
	}
	workers := make([]worker, 4)
	for i := range workers {
		w := &workers[i]
		w.cmd = exec.CommandContext(t.Context(), python, "-c", string(client)+pythonWork, locks, counter)
		w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.out
		if err := w.cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, len(workers))
	for i := range workers {
		go func() { done <- workers[i].cmd.Wait() }() // ends with the process
	}
	ours, left, failed := 1, len(workers), false
	for left > 0 {
		if err := locker.Do(t.Context(), "job", add); err != nil {
			t.Fatal(err)
		}
		ours++
		select {
		case err := <-done:
			left--
			if err != nil {
				failed = true
			}
		case <-time.After(time.Millisecond):
		}
	}
	for i := range workers {
		if failed {
			t.Errorf("a client in Python:\n%s", &workers[i].out)
		}
	}
	text, err := os.ReadFile(counter)
	count, _, _ := strings.Cut(string(text), " ")
	if want := strconv.Itoa(ours + 10*len(workers)); err != nil || count != want {
		t.Errorf("counted %s, %v, want %s: two processes held the lock at the same time", count, err, want)
	}
}
