//go:build unix

// Package reexec runs this program again, as worker processes beside it. They communicate in lines,
// of which the first one that a worker reads is its orders.
package reexec

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// env is the environment variable that has a worker's job.
const env = "FENCELOCK_REEXEC_JOB"

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

// Main runs the job of a worker, and exits. In any other process it does nothing. A program with
// workers calls it first. A job must return when its input ends, because the program has ended then.
func Main(jobs map[string]Job) {
	name, ok := os.LookupEnv(env)
	if !ok {
		return
	}
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		os.Exit(1) // the program has ended
	}
	if err := jobs[name](in.Bytes(), in); err != nil {
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

// Start starts a worker, which the caller must Kill, or Wait for. An interrupt typed at the terminal
// reaches this program only. When that ends, the input of a worker does; the kernel continues one
// that is frozen, since its process group has become an orphan.
func Start(job string, orders any) (*Worker, error) {
	exe, errExe := os.Executable()
	text, errJSON := json.Marshal(orders)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), env+"="+job)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := cmp.Or(errExe, errJSON, errIn, errOut); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &Worker{cmd, in, bufio.NewScanner(out)}
	w.Say(string(text))
	return w, nil
}

// Process returns the worker's process.
func (w *Worker) Process() *os.Process { return w.cmd.Process }

// Say sends a line to the worker. If the worker has ended, the line is lost.
func (w *Worker) Say(line string) { _, _ = fmt.Fprintln(w.in, line) }

// Listen waits for the worker's next line, and reports whether there is one, or it has ended.
func (w *Worker) Listen() bool { return w.out.Scan() }

// Hear returns the worker's next line, "" if it has ended.
func (w *Worker) Hear() string {
	w.Listen()
	return w.out.Text()
}

// Wait waits until the worker ends by itself, and returns its error. Unread output is lost.
func (w *Worker) Wait() error { return w.cmd.Wait() }

// Kill kills the worker, as kill -9 does, and returns when it has ended. It returns how it ended,
// which may have been by itself.
func (w *Worker) Kill() *os.ProcessState {
	if w.cmd.ProcessState == nil {
		_ = w.cmd.Process.Kill() // it may have ended
		_ = w.cmd.Wait()         // it was killed
	}
	return w.cmd.ProcessState
}
