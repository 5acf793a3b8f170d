//go:build unix

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/pipe"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
)

// keep acquires the lock, reports it and holds it until it ends. It runs in the keeper.
func (c *acquireCmd) keep(a *App) error {
	OutliveReaders() // the process that started this one may end at any time
	watched, err := c.watch()
	if err != nil {
		return err
	}
	printed := make(chan struct{})
	a.Context = c.wanted(a.Context, printed, watched)
	engine, closeEngine, err := a.open(a.Context)
	if err != nil {
		return cmp.Or(endedBy(a.Context), err)
	}
	defer func() { _ = closeEngine() }()
	lock, signals, err := c.take(a, engine)
	if err != nil {
		return c.busy(err)
	}
	supervise.NameKeeper()
	holding := &keeper{acquireCmd: c, locker: fencelock.New(engine, nil), lock: lock, until: time.Now().Add(c.MaxHold), watched: watched}
	defer func() { _ = holding.release() }() // if it fails, the lease expires
	if err := holding.startGuard(engine); err != nil {
		return err
	}
	requests, stopListening := listenForRequests(lock.Owner())
	defer stopListening()
	k := acquireView{Name: c.Name, Token: lock.Token(), Owner: lock.Owner(), Handle: lock.Owner() + ":" + c.Name, PID: os.Getpid()}
	_ = json.NewEncoder(os.Stdout).Encode(k) // if nobody reads it, stdin ends
	select {
	case <-printed:
	case <-a.Context.Done():
		return context.Cause(a.Context)
	}
	supervise.Detach()
	holding.untilEnd(requests, signals)
	return nil
}

// wanted returns a context that ends, with an exitError as the cause, when nobody needs the lock:
// the process that started the keeper has ended without printing the handle, or the process of
// --with-pid has ended. printed is closed when the handle was printed.
func (c *acquireCmd) wanted(parent context.Context, printed chan struct{}, watched *otherProcess) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	go func() { // ends with the process that started this one, or after its answer
		if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
			close(printed)
			return
		}
		cancel(Exit(ExitOutput, nil))
	}()
	go func() { // ends with the process of --with-pid, or with this one
		<-watched.ended
		cancel(Exit(ExitUsage, fmt.Errorf("gave up waiting: the process %d of --with-pid has ended", c.WithPID)))
	}()
	return ctx
}

// take acquires the lock.
func (c *acquireCmd) take(a *App, engine driver.Engine) (*fencelock.Lock, chan os.Signal, error) {
	line := newWaitLine(a, c.Name, logEvery)
	defer line.stop()
	take := c.from(fencelock.New(engine, nil).With(c.sharing.over(fencelock.Options{
		TTL: c.TTL, Grace: c.grace(), MaxHold: c.MaxHold, Wait: c.Wait, Note: c.Note, OnWait: line.update,
	})))
	return a.await(func(ctx context.Context) (*fencelock.Lock, error) { return take(ctx, c.Name) }, nil)
}

// keeper holds a lock for a process.
type keeper struct {
	*acquireCmd
	locker  *fencelock.Locker
	lock    *fencelock.Lock
	until   time.Time // end of the maximum hold
	watched *otherProcess
	helper  *pipe.Guard // nil with --detach
}

// theLock is the number of the only lock of a keeper for its guard.
const theLock = 1

// startGuard starts a process that takes over if the keeper is killed. It sends the signal to the
// process of --with-pid, and keeps the descriptors of the lock, if there are any, open until that
// process has ended.
func (k *keeper) startGuard(engine driver.Engine) (err error) {
	if k.Detach {
		return nil
	}
	files, ok := engine.(pipe.Inheritor)
	if !ok {
		files = noFiles{}
	}
	if k.helper, err = startGuard(files, os.Args, nil); err != nil {
		return err
	}
	return k.helper.Keep(theLock, k.lock)
}

// noFiles stands for an engine whose locks are not descriptors. Its guard gets an empty file, so that it
// knows that there is a lock.
type noFiles struct{}

func (noFiles) Inherit(driver.Lease) ([]*os.File, error) {
	null, err := os.Open(os.DevNull)
	return []*os.File{null}, err
}

// guard is the guard of a keeper.
func (c *acquireCmd) guard() error {
	signal.Ignore(supervise.EndSignals...) // they are for the keeper
	supervise.NameKeeper()
	watched, err := c.watch()
	if err != nil {
		return err // the keeper notices that its process has ended
	}
	pipe.RunGuard(func() {
		watched.send(c.signal)
		<-watched.ended
	})
	return nil
}

// release releases the lock. The guard closes its descriptors first, since a release only closes those of
// this process.
func (k *keeper) release() error {
	k.helper.Free(theLock)
	return k.lock.Release()
}

// untilEnd returns when the lock is to be released. If the process of --with-pid has to stop
// before, it gets the signal and some time.
func (k *keeper) untilEnd(requests <-chan keeperRequest, signals <-chan os.Signal) {
	over := k.lock.Context().Done()
	var grace <-chan time.Time // nil until the process has to stop
	for {
		select {
		case <-k.watched.ended:
			return
		case <-grace:
			return
		case r := <-requests:
			if k.serve(r, grace != nil) {
				return
			}
			continue
		case s := <-signals:
			if !slices.Contains(supervise.EndSignals, s) {
				continue
			}
		case <-over:
			if over = nil; k.releasedElsewhere() {
				return
			}
		}
		if grace == nil {
			k.watched.send(k.signal)
			grace = time.After(k.grace())
		}
	}
}

// releasedElsewhere reports whether the lock ended because of fencelock release on another host.
func (k *keeper) releasedElsewhere() bool {
	loss, ok := errors.AsType[*fencelock.LostError](k.lock.Err())
	switch {
	case !ok:
		return false
	case errors.Is(loss.Reason, driver.ErrBroken):
		return strings.Contains(loss.Reason.Error(), releaseReason)
	}
	// If the lock is gone and the reason did not arrive, the server can be asked.
	return errors.Is(loss.Reason, driver.ErrNotHeld) && releaseRecorded(k.locker, k.lock.Owner())
}

// otherProcess is a process that is not a child of this one.
type otherProcess struct {
	process *os.Process
	ended   <-chan struct{} // closed when it has ended; nil means never
}

var errNoProcess = errors.New("there is no such process")

// watchProcess returns a running process.
func watchProcess(pid int) (*otherProcess, error) {
	p, err := os.FindProcess(pid) // on Linux by a pidfd, so that a later process with the same number does not count
	if err == nil {
		if err = p.Signal(unix.Signal(0)); errors.Is(err, os.ErrPermission) {
			err = nil // it belongs to another user
		} else if errors.Is(err, os.ErrProcessDone) {
			err = errNoProcess
		}
	}
	ended := supervise.Ended(pid)
	select {
	case <-ended: // a zombie
		err = cmp.Or(err, errNoProcess)
	default:
	}
	if err != nil {
		return nil, Exit(ExitUsage, fmt.Errorf("--with-pid %d: %w", pid, err))
	}
	return &otherProcess{process: p, ended: ended}, nil
}

// send sends a signal, unless the process has ended.
func (n *otherProcess) send(s os.Signal) {
	if n.process != nil {
		_ = n.process.Signal(s)
	}
}
