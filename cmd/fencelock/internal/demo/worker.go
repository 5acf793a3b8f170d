//go:build unix

package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// worker is a process that takes a step for each line of its input, and writes what it has done.
type worker struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	stderr bytes.Buffer // read it after wait
}

// startWorker starts a worker, which is killed when ctx ends. It has a process group of its own: an
// interrupt at the terminal reaches the demo only, which ends its workers. If the demo is killed, a
// worker reads the end of its stdin and ends; the kernel continues one that is stopped, since its
// group has become an orphan.
func startWorker(ctx context.Context, dir, name string) (*worker, error) {
	program, err := os.Executable()
	w := &worker{name: name, cmd: exec.CommandContext(ctx, program)}
	w.cmd.Args, w.cmd.Dir, w.cmd.Stderr = []string{workerName, name}, dir, &w.stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, errIn := w.cmd.StdinPipe()
	stdout, errOut := w.cmd.StdoutPipe()
	w.stdin, w.stdout = stdin, bufio.NewScanner(stdout)
	if err := errors.Join(err, errIn, errOut); err != nil {
		return w, err
	}
	return w, w.cmd.Start()
}

// pid returns the id of the process.
func (w *worker) pid() int { return w.cmd.Process.Pid }

// answer returns the worker's answer to a step.
func (w *worker) answer() (string, error) {
	if !w.stdout.Scan() {
		w.wait()
		return "", fmt.Errorf("%s ended: %s", w.name, bytes.TrimSpace(w.stderr.Bytes()))
	}
	return w.stdout.Text(), nil
}

// wait waits until the worker has ended.
func (w *worker) wait() { _ = w.cmd.Wait() } // it was killed, or could not be started

// workerName is the first argument of a worker, and its name in the process table.
const workerName = "fencelock-demo-worker"

// A worker runs in init. Only its arguments identify it.
func init() {
	if len(os.Args) != 2 || os.Args[0] != workerName {
		return
	}
	if err := work(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work takes the steps of a worker, each when it reads a line. It must lose its lock before the
// fourth step; the story asks only one of the workers for that.
func work(name string) error {
	steps := bufio.NewScanner(os.Stdin)
	steps.Scan()
	locks := fencelock.New(client{}, nil).With(fencelock.Options{TTL: lease})
	lock, err := locks.Acquire(context.Background(), lockName)
	if err != nil {
		return err
	}
	defer lock.Release() // it is lost, as a rule
	for _, step := range []func() (string, error){
		func() (string, error) { return fmt.Sprintf("acquires the lock: token %d", lock.Token()), nil },
		func() (string, error) {
			return fmt.Sprintf("writes %s and %s: both accept token %d", guarded, plain, lock.Token()), writeBoth(lock, name)
		},
		func() (string, error) { return "checks the lock, still holds it, and is about to write", lock.Err() },
		func() (string, error) {
			refused := writeBoth(lock, name)
			if !errors.Is(refused, fence.ErrStale) {
				return "", fmt.Errorf("%s accepted the late write, or it failed: %w", guarded, refused)
			}
			return refused.Error(), nil
		},
		func() (string, error) {
			<-lock.Context().Done()
			return fmt.Sprintf("reports: %v", context.Cause(lock.Context())), nil
		},
	} {
		text, err := step()
		if err != nil {
			return err
		}
		if _, err := fmt.Println(text); err != nil || !steps.Scan() {
			return err
		}
	}
	return nil
}

// writeBoth writes the file without a guard and the one with it, whose refusal it returns. It
// ignores the end of the lock's context, as does every process that is paused after its last look
// at it.
func writeBoth(lock *fencelock.Lock, name string) error {
	text := fmt.Appendf(nil, "from %s with token %d", name, lock.Token())
	if err := os.WriteFile(plain, text, 0o600); err != nil {
		return err
	}
	return fence.ReplaceFile(context.WithoutCancel(lock.Context()), guarded, text, 0o600)
}
