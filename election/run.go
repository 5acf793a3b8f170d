package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fencelock/fencelock"
)

// Run campaigns for name and runs fn while this process leads. It is short for New(locks, name,
// nil).Run(ctx, fn); see [Candidate.Run].
func Run(ctx context.Context, locks *fencelock.Locker, name string, fn func(ctx context.Context) error) error {
	return New(locks, name, nil).Run(ctx, fn)
}

// Run campaigns until this candidate leads and then runs fn. What happens next depends on how the
// term ends:
//
//   - fn returns during the term: Run ends the term and returns the error of fn, or nil. Cancelling
//     ctx ends Run in this way: the context of fn ends, and fn returns.
//   - The term is lost: the context of fn ends with a cause that is fencelock.ErrLost. Run waits
//     until fn returns, logs its error, and campaigns again.
//   - Resign is called, fn returns ErrResigned, the candidate resigns because of Config.Rank, or the
//     term reaches fencelock.Options.MaxHold, which is the cause of the end of its context: the same,
//     after Config.ResignPause.
//   - fn panics: Run ends the term and panics with an error that contains the value and the stack.
//     It wraps the value if that is an error.
//
// The context of fn is derived from ctx and has the number of the term as its fencing token (see
// fencelock.TokenFrom).
//
// While the engine is unreachable, Run retries until ctx ends or Config.GiveUp returns true. It
// returns fencelock.ErrInvalid, fencelock.ErrUnsupported and fencelock.ErrConfig at once. It returns
// [ErrStuck] if fn still runs Config.ShutdownTimeout after its context has ended. If ctx ends during
// a campaign, the error satisfies errors.Is(err, ctx.Err()), and errors.Is(err, fencelock.ErrHeld)
// if another candidate led.
func (c *Candidate) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.watch(ctx)()
	var term *Term
	var stuck bool
	defer func() { // deferred: the logger may panic
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
			return err // work closes the term when fn returns
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

// panicError is the value with which Run panics after fn has panicked and the term has ended.
type panicError struct {
	value any    // what fn panicked with
	stack []byte // where, from runtime/debug.Stack
}

// Error returns the value and the stack.
func (e *panicError) Error() string { return fmt.Sprintf("%v\n\n%s", e.value, e.stack) }

// Unwrap returns the value if it is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// errExited is the error of an fn that calls runtime.Goexit.
var errExited = errors.New("the work called runtime.Goexit")

// work runs fn for one term and sends its result. If Run has already returned, work closes the
// term.
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
			panic(panicked) // Run has returned and cannot panic
		}
	}()
	err = fn(term.ctx)
}

// await waits for the work of a term. After the end of its context it waits at most for the
// shutdown timeout. It returns the error of the work, or ErrStuck and true.
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
		return <-done, false // it returned at the last moment
	}
	return fmt.Errorf("%w: %q, term %d, %v after the term's end (%w): end this process",
		ErrStuck, c.name, term.Token(), c.cfg.ShutdownTimeout, context.Cause(term.ctx)), true
}

// noteResult logs the error of work whose term is over, since Run does not return it.
func (c *Candidate) noteResult(term *Term, err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, fencelock.ErrLost) || errors.Is(err, fencelock.ErrMaxHold) || errors.Is(err, ErrResigned) {
		return
	}
	c.cfg.Logger.Warn("leader's work failed after its term", "name", c.name, "term", term.Token(), "error", err)
}
