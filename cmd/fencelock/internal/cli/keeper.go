//go:build unix

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
	"github.com/fencelock/fencelock/driver"
)

// keep acquires the lock, reports it and holds it until it ends. It runs in the keeper.
func (c *acquireCmd) keep(a *app) error {
	report := os.NewFile(keeperLink, "report")
	unix.CloseOnExec(keeperLink)
	watched, err := c.watch()
	if err != nil {
		return err
	}
	printed := make(chan struct{})
	a.ctx = c.wanted(a.ctx, printed, watched)
	engine, closeEngine, err := a.open(a.ctx)
	if err != nil {
		return cmp.Or(endedBy(a.ctx), err)
	}
	defer func() { _ = closeEngine() }()
	lock, signals, err := c.take(a, engine)
	if err != nil {
		return busy(err, c.Conflict)
	}
	defer lock.Release() // if it fails, the lease expires
	requests, stopListening := listenForRelease(lock.Owner())
	defer stopListening()
	k := kept{Name: c.Name, Token: lock.Token(), Owner: lock.Owner(), Handle: handleOf(c.Name, lock.Owner()), PID: os.Getpid()}
	if json.NewEncoder(report).Encode(k) == nil {
		report.Close()
	}
	select {
	case <-printed:
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
	supervise.Withdraw()
	c.untilEnd(lock, watched, requests, signals)
	return nil
}

// wanted returns a context that ends, with an exitError as the cause, when nobody needs the lock:
// the process that started the keeper has ended without printing the handle, or the process of
// --with-pid has ended. printed is closed when the handle was printed.
func (c *acquireCmd) wanted(parent context.Context, printed chan struct{}, watched *neighbour) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	go func() { // ends with the process that started this one, or after its answer
		if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
			close(printed)
			return
		}
		cancel(exitWith(exitOutput))
	}()
	go func() { // ends with the process of --with-pid, or with this one
		<-watched.ended
		cancel(&exitError{code: exitUsage, err: fmt.Errorf("gave up waiting: the process %d of --with-pid has ended", c.WithPID)})
	}()
	return ctx
}

// take acquires the lock.
func (c *acquireCmd) take(a *app, engine driver.Engine) (*fencelock.Lock, chan os.Signal, error) {
	line := newWaitLine(a, c.Name, logEvery)
	defer line.stop()
	take := c.from(fencelock.New(engine, nil).With(c.sharing.over(fencelock.Options{
		TTL: c.TTL, Grace: c.grace(), MaxHold: c.MaxHold, Wait: c.Wait.limit, Note: c.Note, OnWait: line.update,
	})))
	return a.await(func(ctx context.Context) (*fencelock.Lock, error) { return take(ctx, c.Name) })
}

// untilEnd returns when the lock is to be released. If the process of --with-pid has to stop
// before, it gets the signal and some time.
func (c *acquireCmd) untilEnd(lock *fencelock.Lock, watched *neighbour, requests <-chan releaseRequest, signals <-chan os.Signal) {
	select {
	case <-watched.ended:
		return
	case r := <-requests:
		r.answer(lock.Release())
		return
	case <-signals:
	case <-lock.Context().Done():
		if releasedElsewhere(lock.Err()) {
			return
		}
	}
	watched.send(c.signal)
	select {
	case <-watched.ended:
	case r := <-requests:
		r.answer(lock.Release())
	case <-time.After(c.grace()):
	}
}

// releasedElsewhere reports whether a lock ended because of fencelock release on another host.
func releasedElsewhere(err error) bool {
	loss, ok := errors.AsType[*fencelock.LostError](err)
	return ok && errors.Is(loss.Reason, driver.ErrBroken) && strings.Contains(loss.Reason.Error(), releaseReason)
}

// releaseRequest is a fencelock release on the host of the keeper. The keeper then releases the lock
// itself. Through the server the message could be lost, and the keeper would report a lost lock.
type releaseRequest struct{ answer func(error) }

// The answers of a keeper. After any other answer, release asks the server.
const (
	answerReleased = "released\n"
	answerLost     = "lost\n"
)

// answerOf returns the answer after a release.
func answerOf(err error) string {
	switch {
	case err == nil:
		return answerReleased
	case errors.Is(err, driver.ErrNotHeld):
		return answerLost
	}
	return ""
}
