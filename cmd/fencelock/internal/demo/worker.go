//go:build unix

package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// worker is a process that takes the steps which the story asks for.
type worker struct {
	name    string
	cmd     *exec.Cmd // nil if it could not be started
	stdin   io.WriteCloser
	answers *json.Decoder
	stderr  bytes.Buffer // read it after wait
}

// startWorker starts a worker, which is killed when ctx ends. It has a process group of its own: an
// interrupt at the terminal reaches the demo only, which ends its workers. If the demo is killed, a
// worker reads the end of its stdin and ends; the kernel continues one that is stopped, since its
// group has become an orphan.
func startWorker(ctx context.Context, dir, name string) (*worker, error) {
	w := &worker{name: name}
	program, err := os.Executable()
	if err != nil {
		return w, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Args, cmd.Dir, cmd.Stderr = []string{workerName, name}, dir, &w.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if w.stdin, err = cmd.StdinPipe(); err != nil {
		return w, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return w, err
	}
	if err := cmd.Start(); err != nil {
		return w, err
	}
	w.cmd, w.answers = cmd, json.NewDecoder(stdout)
	return w, nil
}

// pid returns the id of the process.
func (w *worker) pid() int {
	if w.cmd == nil {
		return 0
	}
	return w.cmd.Process.Pid
}

// send asks the worker to take a step. A frozen worker reads it when it continues.
func (w *worker) send(step string) error {
	_, err := fmt.Fprintln(w.stdin, step)
	return err
}

// receive returns the worker's answer to a step.
func (w *worker) receive() (r reply, err error) {
	if err := w.answers.Decode(&r); err != nil {
		w.wait()
		return r, fmt.Errorf("%s ended: %w %s", w.name, err, bytes.TrimSpace(w.stderr.Bytes()))
	}
	return r, nil
}

// wait waits until the worker has ended.
func (w *worker) wait() {
	if w.cmd != nil {
		_ = w.stdin.Close()
		_ = w.cmd.Wait() // it was killed
	}
}

// The steps of a worker, besides acquire.
const (
	check = "check" // its lock
	write = "write" // both files
	loss  = "loss"  // wait until the lock is lost
)

// reply is a worker's answer to a step.
type reply struct {
	Token   int64
	Guarded string // why the guarded file refused a write
	Stale   bool   // that is fence.ErrStale
	Error   string
}

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

// work takes the steps that it reads from stdin.
func work(name string) error {
	locks := fencelock.New(client{name}, nil).With(fencelock.Options{TTL: lease, Note: name})
	lock, out := (*fencelock.Lock)(nil), json.NewEncoder(os.Stdout)
	defer func() {
		if lock != nil {
			_ = lock.Release() // it is lost, as a rule
		}
	}()
	for steps := bufio.NewScanner(os.Stdin); steps.Scan(); {
		var r reply
		var err error
		switch steps.Text() {
		case acquire:
			if lock, err = locks.Acquire(context.Background(), lockName); err == nil {
				r.Token = lock.Token()
			}
		case check:
			err = lock.Err()
		case write:
			r, err = writeBoth(lock, name)
		case loss:
			<-lock.Context().Done()
			err = context.Cause(lock.Context())
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// writeBoth writes the file with a guard and the file without one. It ignores the end of the lock's
// context, as does every process that is paused after its last look at it.
func writeBoth(lock *fencelock.Lock, name string) (reply, error) {
	ctx := context.WithoutCancel(lock.Context())
	text := fmt.Appendf(nil, "from %s with token %d", name, lock.Token())
	r := reply{Token: lock.Token()}
	err := fence.ReplaceFile(ctx, guarded, text, 0o600)
	if r.Stale = errors.Is(err, fence.ErrStale); r.Stale {
		r.Guarded, err = err.Error(), nil
	}
	return r, errors.Join(err, os.WriteFile(plain, text, 0o600))
}
