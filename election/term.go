package election

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/fencelock/fencelock"
)

// Term is one time in charge. It is safe for concurrent use.
type Term struct {
	locks    *fencelock.Locker
	lock     *fencelock.Lock
	ctx      context.Context
	cancel   context.CancelCauseFunc
	unfollow []func() bool // stop what watches the contexts
	lost     bool          // set by close, before anybody reads it
	left     bool          // the work has returned; guarded by Candidate.mu
}

// Context returns a context that ends with the term, with the cause of its end:
// an error that is fencelock.ErrLost, [ErrResigned], or that of the context given
// to Run or Terms. It carries the term's number for fencelock.TokenFrom.
func (t *Term) Context() context.Context { return t.ctx }

// Token returns the term's number, which is the fencing token of its lock: greater than
// that of every earlier term of this name in any process.
func (t *Term) Token() int64 { return t.lock.Token() }

// Lock returns the lock that the term stands on, for guards and for status. The term
// releases it.
func (t *Term) Lock() *fencelock.Lock { return t.lock }

// Err returns nil while the term stands, and why not otherwise. It is exact, does
// no I/O, and belongs right before a step that only the leader may take.
func (t *Term) Err() error {
	if err := t.lock.Err(); err != nil {
		return err
	}
	return context.Cause(t.ctx)
}

// again reports whether the candidate campaigns again, after work that returned
// err.
func (t *Term) again(err error) bool {
	return t.lost || errors.Is(context.Cause(t.ctx), ErrResigned) || errors.Is(err, ErrResigned)
}

// Terms campaigns, and yields each term that this candidate wins. The body of the
// loop is the work of the term: it should return when the term's context ends.
// When the body ends, so does the term, and the candidate campaigns again; break
// resigns for good. An error is the last thing yielded; it is as for Run, a
// canceled ctx included. Config.ShutdownTimeout does not apply, since nothing else can
// leave the body; [Candidate.Check] tells of a body that goes on too long.
func (c *Candidate) Terms(ctx context.Context) iter.Seq2[*Term, error] {
	return func(yield func(*Term, error) bool) {
		if err := c.begin(); err != nil {
			yield(nil, err)
			return
		}
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

// body lets the loop's body have its term, which ends with it.
func (c *Candidate) body(term *Term, yield func(*Term, error) bool) bool {
	defer c.close(term)
	return yield(term, nil)
}

// enter begins a term, whose context ends with ctx, the lock, or a resignation.
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

// stopping notes that the context of a term has ended and its work has not.
func (c *Candidate) stopping(term *Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term == term {
		c.set(Stopping, term)
	}
}

// noteLoss notes when a term was lost whose work has not returned.
func (c *Candidate) noteLoss(term *Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term == term && c.lost.IsZero() {
		c.lost = time.Now()
	}
}

// close gives the name back, now that the work of the term has returned.
func (c *Candidate) close(term *Term) {
	for _, stop := range term.unfollow {
		stop()
	}
	c.leave(term) // of Terms; that of Run has left
	standing := term.lock.Err()
	term.cancel(context.Canceled) // whatever the work left behind ends before the next leader begins
	err := term.lock.Release()
	term.lost = errors.Is(standing, fencelock.ErrLost) || errors.Is(err, fencelock.ErrNotHeld)
	if err != nil && !term.lost {
		c.cfg.Logger.Warn("release failed", "name", c.name, "term", term.Token(), "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = nil
}
