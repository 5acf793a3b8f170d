//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/pipe"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
)

// outcome is how a command under a lock has ended.
type outcome struct {
	supervise.End
	stuck   bool  // processes of the command still run, so no other command may start
	begun   bool  // the command started, or was not started because its maximum was over
	refused bool  // --on-acquire failed, so the command did not start
	err     error // carries the exit code
}

// hold runs the command under its lock and releases the lock as soon as every process of the
// command has ended. It calls started when the command has started. Before the release it calls over
// with the error of the command, or nil if it succeeded.
func (a *App) hold(engine driver.Engine, lock *fencelock.Lock, c supervise.Command, started func(), over func(error)) outcome {
	a.detail("acquired %q, token %d", lock.Name(), lock.Token())
	began := time.Now()
	err := withoutMax(lock)
	var process *supervise.Process
	if err == nil {
		process, err = begin(engine, lock, c)
	}
	if err != nil {
		over(err)
		_ = releaseLock(lock) // nothing runs; if this fails, the lease expires
		capped := exitCode(err) == exitCapped
		return outcome{End: supervise.End{Lost: errors.Is(err, driver.ErrLost), Capped: capped}, begun: capped, err: err}
	}
	started()
	end := a.late(process.Wait(), lock)
	over(failureOf(end))
	if err := a.stuck(end, lock); err != nil {
		process.Close()
		return outcome{End: end, stuck: true, begun: true, err: err}
	}
	freed := releaseLock(lock)
	process.Close() // after the release, so that waiters need not wait for the watchdog
	if freed == nil {
		a.detail("released %q after %v", lock.Name(), time.Since(began).Round(time.Millisecond))
	}
	err = a.verdict(end, freed)
	end.Lost = end.Lost || errors.Is(freed, driver.ErrNotHeld)
	return outcome{End: end, begun: true, err: err}
}

// withoutMax removes the maximum hold of a lock. supervise stops the command when its maximum is
// over, and the lock must be renewed until every process of the command has ended.
func withoutMax(lock *fencelock.Lock) error {
	err := lock.SetMaxHold(0)
	if errors.Is(err, fencelock.ErrMaxHold) {
		return Exit(exitCapped, fmt.Errorf("the command was not started: %w", err))
	}
	return nil // begin reports a lost lock
}

// late reports a command that the watchdog killed at the deadline, and marks its lock as lost.
func (a *App) late(end supervise.End, lock *fencelock.Lock) supervise.End {
	if end.Late && !end.Lost {
		end.Lost = true
		a.Say("lock %q was not renewed in time; the command was killed before the lease expired", lock.Name())
	}
	return end
}

// stuck returns an error if processes of the command could not be killed. The lock is not released
// then, and the watchdog keeps trying to kill them.
func (a *App) stuck(end supervise.End, lock *fencelock.Lock) error {
	if end.Left == 0 {
		return nil
	}
	return Exit(exitLost, fmt.Errorf("lock %q was lost, but processes of the command still run (%d), since they belong to another user\ntry: sudo fencelock run ..., not fencelock run ... sudo", lock.Name(), end.Left))
}

// begin starts the command. If the lock is a file descriptor, as one of filelock, the watchdog and the
// command inherit it.
func begin(engine driver.Engine, lock *fencelock.Lock, c supervise.Command) (_ *supervise.Process, err error) {
	if c.Inherit, err = filesOf(engine, lock); err != nil {
		return nil, err
	}
	return supervise.Start(c)
}

// filesOf returns duplicates of the file descriptors of a lock, if it has some.
func filesOf(engine driver.Engine, lock *fencelock.Lock) ([]*os.File, error) {
	i, ok := engine.(pipe.Inheritor)
	if !ok {
		return nil, nil
	}
	files, err := i.Inherit(driver.Lease{Name: lock.Name(), Owner: lock.Owner(), Token: lock.Token()})
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		return nil, fmt.Errorf("%w before the command was started: %w", driver.ErrLost, err)
	case err != nil:
		return nil, Exit(exitStart, fmt.Errorf("the command cannot inherit the lock: %w", err))
	}
	return files, nil
}

// releaseLock releases the lock.
func releaseLock(lock *fencelock.Lock) error { return withinLease(lock, lock.Release) }

// withinLease calls f, which has a timeout of its own. If the lock was lost, perhaps because the
// server is unreachable, it waits for f no longer than until the lease is over.
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

// verdict returns the exit code of the command as an error. If the release failed because the lock
// was lost, the exit code is that of a lost lock. Another failure of the release is only reported.
func (a *App) verdict(end supervise.End, freed error) error {
	code := codeOf(end)
	switch {
	case freed == nil || code == exitLost:
	case errors.Is(freed, driver.ErrNotHeld):
		return Exit(exitLost, fmt.Errorf("the command exited with code %d, but %w", code, freed))
	default:
		a.Say("the command ended, but its lock could not be released: %v", freed)
	}
	if code == exitSignal+int(unix.SIGINT) && end.Status.Signaled() {
		return endedBySignal(unix.SIGINT)
	}
	return Exit(code, nil)
}

// failureOf returns the error of a command, or nil if it succeeded.
func failureOf(end supervise.End) error {
	switch code := codeOf(end); {
	case end.Lost:
		return driver.ErrLost
	case end.Capped:
		return errors.New("the command ran for longer than --max-hold")
	case end.Cancelled:
		return errors.New("the command was stopped")
	case end.Status.Signaled():
		return fmt.Errorf("the command was killed by %s", unix.SignalName(end.Status.Signal()))
	case code != 0:
		return fmt.Errorf("the command exited with code %d", code)
	}
	return nil
}

// codeOf returns the exit code of a command, as shells have it.
func codeOf(end supervise.End) int {
	switch {
	case end.Lost:
		return exitLost
	case end.Capped:
		return exitCapped
	case end.Broken:
		return exitStart
	case end.Status.Signaled():
		return exitSignal + int(end.Status.Signal())
	}
	return end.Status.ExitStatus()
}
