package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fencelock/fencelock"
)

// Run is New(locks, name, nil).Run(ctx, fn): it campaigns for name and runs fn
// while this process leads. See [Candidate.Run].
func Run(ctx context.Context, locks *fencelock.Locker, name string, fn func(ctx context.Context) error) error {
	return New(locks, name, nil).Run(ctx, fn)
}

// Run campaigns until this candidate leads, runs fn, and does so again whenever
// a term ends before its work does:
//
//   - fn returns while the term stands: the term ends, and Run returns fn's
//     error, nil included. That is also how a canceled ctx ends Run: fn sees it,
//     stops and returns.
//   - The term is lost: the context of fn ends with a cause that is
//     fencelock.ErrLost. Once fn has returned, Run campaigns again; what fn
//     returned is logged.
//   - Resign is called, or fn returns ErrResigned: the same, after Config.ResignPause.
//
// A panic in fn ends the term, and Run panics with an error that tells the value and the stack, and wraps the
// value if that is an error.
//
// The context of fn is made from ctx and carries the term's number for
// fencelock.TokenFrom. An engine that cannot be reached is asked again until ctx
// ends; Run gives up on errors that will not pass (fencelock.ErrInvalid,
// fencelock.ErrUnsupported, fencelock.ErrConfig), and with [ErrStuck] when fn goes on for longer than
// Config.ShutdownTimeout after its context has ended. If ctx ends during a campaign, the
// error satisfies errors.Is(err, ctx.Err()).
func (c *Candidate) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := c.begin(); err != nil {
		return err
	}
	var term *Term
	var stuck bool
	defer func() { // for a panic of the logger too
		if !stuck {
			c.end(term)
		}
	}()
	for {
		var err error
		if term, err = c.campaign(ctx); err != nil {
			return err
		}
		done := make(chan error, 1)
		go c.work(term, fn, done) // ends when fn has returned
		if err, stuck = c.await(term, done); stuck {
			return err // work closes the term when fn returns at last
		}
		c.close(term)
		if panicked, ok := err.(*panicError); ok { //nolint:errorlint // fn may return one of another Run
			panic(panicked)
		}
		if !term.again(err) {
			return err
		}
		c.noteResult(term, err)
		c.rest(ctx, term)
	}
}

// panicError is what Run panics with when fn did, in the goroutine of its caller, after
// the term has ended.
type panicError struct {
	value any    // what fn panicked with
	stack []byte // where, as runtime/debug.Stack tells it
}

// Error returns the value and the stack.
func (e *panicError) Error() string { return fmt.Sprintf("%v\n\n%s", e.value, e.stack) }

// Unwrap returns the value if it is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// errExited stands for fn's error if its goroutine ends by runtime.Goexit.
var errExited = errors.New("the work ended its goroutine")

// work runs fn for one term and says what it returned. If Run has given up by
// then, it closes the term as well.
func (c *Candidate) work(term *Term, fn func(ctx context.Context) error, done chan<- error) {
	err := errExited
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
		if !c.leave(term) {
			done <- err
			return
		}
		c.noteResult(term, err)
		c.close(term)
		c.end(term)
		if panicked, ok := err.(*panicError); ok { //nolint:errorlint // see Run
			panic(panicked) // nobody else hears of it
		}
	}()
	err = fn(term.ctx)
}

// await waits for the work of a term, once its context has ended no longer than
// the shutdown limit. It returns the work's error, or ErrStuck and true.
func (c *Candidate) await(term *Term, done <-chan error) (err error, stuck bool) {
	select {
	case err := <-done:
		return err, false
	case <-term.ctx.Done():
	}
	if c.cfg.ShutdownTimeout < 0 {
		return <-done, false
	}
	limit := time.NewTimer(c.cfg.ShutdownTimeout)
	defer limit.Stop()
	select {
	case err := <-done:
		return err, false
	case <-limit.C:
	}
	if !c.abandon(term) {
		return <-done, false // it returned in the same instant
	}
	return fmt.Errorf("%w: %q, term %d, %v after the term's end (%w): end this process",
		ErrStuck, c.name, term.Token(), c.cfg.ShutdownTimeout, context.Cause(term.ctx)), true
}

// noteResult logs what would be hidden: the error of work whose term was over.
func (c *Candidate) noteResult(term *Term, err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, fencelock.ErrLost) || errors.Is(err, ErrResigned) {
		return
	}
	c.cfg.Logger.Warn("leader's work failed after its term", "name", c.name, "term", term.Token(), "error", err)
}
