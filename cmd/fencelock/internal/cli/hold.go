//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
	"github.com/fencelock/fencelock/driver"
)

// outcome is how a command under a lock has ended.
type outcome struct {
	lost  bool  // the lock was gone before the command was
	stuck bool  // something of the command lives on, so there must be no next one
	asked bool  // somebody asked us to end, and the command with us
	begun bool  // it was started
	err   error // carries the exit code
}

// hold runs the command under its lock, and gives the lock back as soon as nothing of the
// command is left. Before that it calls over with how the command has ended, nil being well.
func (a *app) hold(engine driver.Engine, lock *fencelock.Lock, c supervise.Command, over func(error)) outcome {
	a.detail("acquired %q, token %d", lock.Name(), lock.Token())
	began := time.Now()
	process, err := begin(engine, lock, c)
	if err != nil {
		over(err)
		_ = giveBack(lock) // nothing runs; if this fails, the lease ends
		return outcome{lost: errors.Is(err, driver.ErrLost), err: err}
	}
	end := a.late(process.Wait(), lock)
	over(failureOf(end))
	if err := a.stuck(end, lock); err != nil {
		process.Close()
		return outcome{lost: true, stuck: true, begun: true, err: err}
	}
	freed := giveBack(lock)
	process.Close() // nobody who waits for the lock waits for the watchdog
	if freed == nil {
		a.detail("released %q after %v", lock.Name(), time.Since(began).Round(time.Millisecond))
	}
	return outcome{
		lost:  end.Lost || errors.Is(freed, driver.ErrNotHeld),
		asked: end.Asked,
		begun: true,
		err:   a.verdict(end, freed),
	}
}

// late counts a lock as lost whose command the watchdog has killed at the deadline, and says so.
func (a *app) late(end supervise.End, lock *fencelock.Lock) supervise.End {
	if end.Late && !end.Lost {
		end.Lost = true
		a.say("lock %q was not renewed in time; the command was killed before the lease expired", lock.Name())
	}
	return end
}

// stuck is an error if processes of the command could not be killed. The lock is not given back
// then: the watchdog, which goes on trying, keeps what is left of it.
func (a *app) stuck(end supervise.End, lock *fencelock.Lock) error {
	if end.Left == 0 {
		return nil
	}
	return &exitError{code: exitLost, err: fmt.Errorf("lock %q was lost, but processes of the command still run (%d), since they belong to another user\ntry: sudo fencelock run ..., not fencelock run ... sudo", lock.Name(), end.Left)}
}

// inheritor is an engine whose locks live in descriptors, which the command gets, such as filelock.
type inheritor interface {
	Inherit(l driver.Lease) ([]*os.File, error)
}

// begin starts the command. The watchdog, and with it the command, gets the descriptors of a lock
// that lives in some.
func begin(engine driver.Engine, lock *fencelock.Lock, c supervise.Command) (*supervise.Process, error) {
	if i, ok := engine.(inheritor); ok {
		var err error
		if c.Inherit, err = i.Inherit(driver.Lease{Name: lock.Name(), Owner: lock.Owner(), Token: lock.Token()}); errors.Is(err, driver.ErrNotHeld) {
			return nil, fmt.Errorf("%w before the command was started: %w", driver.ErrLost, err)
		} else if err != nil {
			return nil, &exitError{code: exitStart, err: fmt.Errorf("the command cannot inherit the lock: %w", err)}
		}
	}
	return supervise.Start(c)
}

// giveBack releases the lock. One that was lost, perhaps because the engine is
// silent, is not worth a wait beyond the end of its lease.
func giveBack(lock *fencelock.Lock) error { return withinLease(lock, lock.Release) }

// withinLease calls f, which has a timeout of its own. If the lock was lost, it waits for f no
// longer than until the lease is over.
func withinLease(lock *fencelock.Lock, f func() error) error {
	deadline := lock.Deadline()
	if lock.Err() == nil || deadline.IsZero() {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- f() }() // ends after its timeout, or with the process
	select {
	case err := <-done:
		return err
	case <-time.After(time.Until(deadline)):
		return fmt.Errorf("%w: the lease is over", driver.ErrNotHeld)
	}
}

// verdict is the exit code that the command has earned. A release that failed turns it
// into that of a lost lock, or is a word of warning if only the release went wrong.
func (a *app) verdict(end supervise.End, freed error) error {
	code := codeOf(end)
	switch {
	case freed == nil || code == exitLost:
	case errors.Is(freed, driver.ErrNotHeld):
		return &exitError{code: exitLost, err: fmt.Errorf("the command exited with code %d, but %w", code, freed)}
	default:
		a.say("the command ended, but its lock could not be released: %v", freed)
	}
	if code == exitSignal+int(unix.SIGINT) && end.Status.Signaled() {
		return &exitError{code: code, interrupted: true}
	}
	return exitWith(code)
}

// failureOf is how a command has ended as an error, nil if it has ended well.
func failureOf(end supervise.End) error {
	switch code := codeOf(end); {
	case end.Lost:
		return driver.ErrLost
	case end.Status.Signaled():
		return fmt.Errorf("the command was killed by %s", unix.SignalName(end.Status.Signal()))
	case code != 0:
		return fmt.Errorf("the command exited with code %d", code)
	}
	return nil
}

// codeOf is the exit code of a command, as shells have it.
func codeOf(end supervise.End) int {
	switch {
	case end.Lost:
		return exitLost
	case end.Broken:
		return exitStart
	case end.Status.Signaled():
		return exitSignal + int(end.Status.Signal())
	}
	return end.Status.ExitStatus()
}
