//go:build unix

// Package crew runs the test binary again, as worker processes beside the test. They get their
// orders from the environment and communicate in lines.
package crew

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// The environment of a worker: its job, and its orders as JSON.
const (
	envJob    = "FENCELOCK_CREW_JOB"
	envOrders = "FENCELOCK_CREW_ORDERS"
)

// A Job is what a worker does. Its input is the lines that it is sent. The process ends when the
// Job returns. Use [Of] to create one.
type Job func(orders []byte, in *bufio.Scanner) error

// Of returns a Job whose orders are a T.
func Of[T any](do func(orders T, in *bufio.Scanner) error) Job {
	return func(text []byte, in *bufio.Scanner) error {
		var orders T
		if err := json.Unmarshal(text, &orders); err != nil {
			return err
		}
		return do(orders, in)
	}
}

// Main must be called by TestMain. It runs the tests or, in a worker, its job, and exits. A job
// must return when its input ends, because the test has ended then.
func Main(m *testing.M, jobs map[string]Job) {
	name, ok := os.LookupEnv(envJob)
	if !ok {
		os.Exit(m.Run())
	}
	if err := jobs[name]([]byte(os.Getenv(envOrders)), bufio.NewScanner(os.Stdin)); err != nil {
		fmt.Fprintf(os.Stderr, "%s %d: %v\n", name, os.Getpid(), err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A Worker is a process that runs a job. Only one goroutine at a time may communicate with it.
type Worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// Hire starts a worker, which is killed at the end of the test. Any goroutine may call it.
func Hire(t testing.TB, job string, orders any) (*Worker, error) {
	exe, errExe := os.Executable()
	text, errJSON := json.Marshal(orders)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envJob+"="+job, envOrders+"="+string(text))
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := cmp.Or(errExe, errJSON, errIn, errOut, cmd.Start()); err != nil {
		return nil, err
	}
	w := &Worker{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(w.Kill)
	return w, nil
}

// Process returns the worker's process.
func (w *Worker) Process() *os.Process { return w.cmd.Process }

// Say sends a line to the worker. If the worker has ended, the line is lost.
func (w *Worker) Say(line string) { _, _ = fmt.Fprintln(w.in, line) }

// Hear returns the worker's next line, "" if it has ended.
func (w *Worker) Hear() string {
	w.out.Scan()
	return w.out.Text()
}

// Want fails the test unless the worker's next line is line.
func (w *Worker) Want(t testing.TB, line string) {
	t.Helper()
	if got := w.Hear(); got != line {
		t.Fatalf("a worker said %q, want %q", got, line)
	}
}

// Wait waits until the worker ends by itself, and returns its error. Unread output is lost.
func (w *Worker) Wait() error { return w.cmd.Wait() }

// Kill kills the worker, as kill -9 does, and returns when it has ended.
func (w *Worker) Kill() {
	if w.cmd.ProcessState == nil {
		_ = w.cmd.Process.Kill() // it may have ended
		_ = w.cmd.Wait()         // it was killed
	}
}
