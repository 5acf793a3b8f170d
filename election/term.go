package election

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/fencelock/fencelock"
)

// Term is one period of leadership. It is safe for concurrent use.
type Term struct {
	locks    *fencelock.Locker
	lock     *fencelock.Lock
	ctx      context.Context
	cancel   context.CancelCauseFunc
	unfollow []func() bool // stop the callbacks on the contexts
	lost     bool          // set by close before it is read
	left     bool          // the work has returned; guarded by Candidate.mu
}

// Context returns a context that ends with the term. Its cause is an error that is
// fencelock.ErrLost, fencelock.ErrMaxHold or [ErrResigned], or the cause of the context given to Run
// or Terms. It has the number of the term as its fencing token.
func (t *Term) Context() context.Context { return t.ctx }

// Token returns the number of the term. It is the fencing token of the lock: greater than that of
// every earlier term of this name in any process.
func (t *Term) Token() int64 { return t.lock.Token() }

// Lock returns the lock of the term, for guards and for its status. The term releases it when the
// work has ended. Work may release it earlier, as its last step, to learn the result: the term ends
// with it, and its own release does nothing.
func (t *Term) Lock() *fencelock.Lock { return t.lock }

// Err returns nil while this candidate leads in the term, and the reason of its end otherwise. It
// is exact and does no I/O. Call it right before a step that only the leader may take.
func (t *Term) Err() error {
	if err := t.lock.Err(); err != nil {
		return err
	}
	return context.Cause(t.ctx)
}

// again reports whether the candidate campaigns again after work that returned err.
func (t *Term) again(err error) bool {
	cause := context.Cause(t.ctx)
	return t.lost || errors.Is(cause, fencelock.ErrMaxHold) || errors.Is(cause, ErrResigned) || errors.Is(err, ErrResigned)
}

// Terms campaigns and yields each term that this candidate wins. The body of the loop is the work
// of the term: it should end when the context of the term ends. When the body ends, the term ends
// and the candidate campaigns again. Leave the loop with break to stop.
//
// If there is an error, it is the last element. The errors are those of [Candidate.Run], including
// that of a cancelled ctx. Config.ShutdownTimeout has no effect, since nothing can end the body from
// outside. Use [Candidate.Check] to detect a body that runs too long.
func (c *Candidate) Terms(ctx context.Context) iter.Seq2[*Term, error] {
	return func(yield func(*Term, error) bool) {
		if err := c.begin(); err != nil {
			yield(nil, err)
			return
		}
		defer c.watch(ctx)()
		var term *Term
		defer func() { c.end(term) }()
		for {
			var err error
			if term, err = c.campaign(ctx); err != nil {
				yield(nil, err)
				return
			}
			if !c.body(term, yield) {
				return
			}
			c.rest(ctx, term)
		}
	}
}

// body runs the body of the loop and then closes the term.
func (c *Candidate) body(term *Term, yield func(*Term, error) bool) bool {
	defer c.close(term)
	return yield(term, nil)
}

// enter begins a term. Its context ends with ctx, with the lock, or by a resignation.
func (c *Candidate) enter(ctx context.Context, lock *fencelock.Lock) *Term {
	term := &Term{locks: c.locks, lock: lock}
	term.ctx, term.cancel = context.WithCancelCause(lock.Context())
	c.mu.Lock()
	c.term, c.lost = term, time.Time{}
	c.set(Leading, term)
	c.mu.Unlock()
	term.unfollow = []func() bool{
		context.AfterFunc(ctx, func() { term.cancel(context.Cause(ctx)) }),
		context.AfterFunc(lock.Context(), func() { c.noteLoss(term) }),
		context.AfterFunc(term.ctx, func() { c.stopping(term) }),
	}
	return term
}

// stopping records that the context of a term has ended while its work still runs.
func (c *Candidate) stopping(term *Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term == term {
		c.set(Stopping, term)
	}
}

// noteLoss records when a term was lost while its work still runs.
func (c *Candidate) noteLoss(term *Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term == term && c.lost.IsZero() {
		c.lost = time.Now()
	}
}

// close ends a term whose work has returned and releases the lock.
func (c *Candidate) close(term *Term) {
	for _, stop := range term.unfollow {
		stop()
	}
	c.leave(term) // for Terms; Run has called it already
	standing := term.lock.Err()
	term.cancel(context.Canceled) // ends goroutines that the work left behind, before the next leader starts
	err := c.release(term.lock)
	term.lost = errors.Is(standing, fencelock.ErrLost) || errors.Is(err, fencelock.ErrNotHeld) && !errors.Is(err, fencelock.ErrMaxHold)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = nil
}
