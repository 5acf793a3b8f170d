package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

var (
	// ErrResigned is the cause of a term's end after Resign. Work that returns it
	// resigns: Run campaigns again.
	ErrResigned = errors.New("resigned")
	// ErrStuck says that the work of a term goes on although the term is over.
	ErrStuck = errors.New("the leader's work still runs")
)

// Config is what a Candidate does beside campaigning. The zero Config is useful.
type Config struct {
	// Value is published while this candidate leads or waits, such as its
	// address; see [Observe]. It travels as the lock's note. Empty, the default,
	// publishes the Locker's note. A leader changes it by [Term.Publish].
	Value string

	// ShutdownTimeout is how long the work may go on after its context has ended before
	// Run returns ErrStuck. The name, unless it is lost, is kept until the work
	// returns at last, and until then this Candidate does not campaign. Negative
	// means for ever. 0 means the default, 30 s.
	ShutdownTimeout time.Duration

	// ResignPause is how long a candidate that resigned waits before it campaigns again,
	// so that another one gets its turn. 0 means the default, 1 s.
	ResignPause time.Duration

	// OnChange is told every change of state, in order and from one goroutine. A
	// call that blocks delays the next one and nothing else. nil, the default, is
	// no call.
	OnChange func(Change)

	// Logger gets what cannot be returned: an engine that cannot be reached, and
	// errors of work whose term was lost. nil, the default, is silent.
	Logger *slog.Logger
}

const (
	defaultShutdown = 30 * time.Second
	defaultRest     = time.Second
	firstPause      = 100 * time.Millisecond // after a campaign that failed
	lastPause       = 5 * time.Second
)

// Candidate campaigns for one name. It is safe for concurrent use, and is at most
// once in Run or Terms at a time.
type Candidate struct {
	locks *fencelock.Locker
	name  string
	cfg   Config

	mu      sync.Mutex // guards running, stuck, state, changes, telling, term, lost, and left of each term
	running bool       // Run or Terms is at work, or fn is stuck
	stuck   bool       // Run returned ErrStuck and fn still runs
	state   State
	changes []Change  // OnChange has not been told yet
	telling bool      // tell is at work
	term    *Term     // the latest term, until its work has returned
	lost    time.Time // when term was lost; zero before
}

// New returns a candidate for name. It does no I/O; cfg may be nil. The Locker's TTL, grace, note,
// minimum hold and OnWait are those of the terms; the grace, a fifth of the TTL if it is 0, is the time
// for the work to stop before anyone else may lead. Its wait limit, Shared, Limit and Weight are
// not: a campaign goes on until it leads, and one leads at a time.
func New(locks *fencelock.Locker, name string, cfg *Config) *Candidate {
	c := &Candidate{name: name}
	if cfg != nil {
		c.cfg = *cfg
	}
	c.cfg.ShutdownTimeout = cmp.Or(c.cfg.ShutdownTimeout, defaultShutdown)
	c.cfg.ResignPause = cmp.Or(c.cfg.ResignPause, defaultRest)
	if c.cfg.Logger == nil {
		c.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	o := locks.Options()
	o.Note = cmp.Or(c.cfg.Value, o.Note)
	o.Grace = cmp.Or(o.Grace, o.TTL/5)        // for the work to stop before anyone else may lead
	o.Wait = 0                                // a campaign keeps its place in the queue
	o.Shared, o.Limit, o.Weight = false, 0, 0 // or several would lead at once
	c.locks = locks.WithOnly(o)
	return c
}

// Term returns the term in which this candidate leads at this instant, and nil if
// it does not lead. It is exact and does no I/O.
func (c *Candidate) Term() *Term {
	c.mu.Lock()
	term := c.term
	c.mu.Unlock()
	if term == nil || term.Err() != nil {
		return nil
	}
	return term
}

// Resign ends the context of the present term with the cause ErrResigned, and
// reports whether there was one. It does not wait: the name is given back when
// the work has returned.
func (c *Candidate) Resign() bool {
	term := c.Term()
	if term != nil {
		term.cancel(ErrResigned)
	}
	return term != nil
}

// begin claims the candidate for Run or Terms.
func (c *Candidate) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stuck:
		return fmt.Errorf("%w: %q: end this process before it campaigns again", ErrStuck, c.name)
	case c.running:
		return fmt.Errorf("%w: the candidate for %q runs already; make another one", fencelock.ErrInvalid, c.name)
	}
	c.running = true
	c.set(Campaigning, nil)
	return nil
}

// end lets go of the candidate, after term; nil if it won none.
func (c *Candidate) end(term *Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.stuck = false, false
	c.set(Idle, term)
}

// abandon notes that Run returns without the work of term; false if the work has
// returned.
func (c *Candidate) abandon(term *Term) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck = !term.left
	return c.stuck
}

// leave notes that the work of term has returned, and reports whether Run did so
// before.
func (c *Candidate) leave(term *Term) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	term.left = true
	return c.stuck
}

// campaign waits until the candidate leads. Failures that may pass are tried
// again until ctx ends.
func (c *Candidate) campaign(ctx context.Context) (*Term, error) {
	for pause := retry.NewBackoff(firstPause, lastPause); ; {
		lock, err := c.locks.Acquire(ctx, c.name)
		switch {
		case err == nil:
			return c.enter(ctx, lock), nil
		case ctx.Err() != nil:
			return nil, errors.Join(err, context.Cause(ctx))
		case errors.Is(err, fencelock.ErrInvalid), errors.Is(err, fencelock.ErrUnsupported), errors.Is(err, fencelock.ErrConfig):
			return nil, err
		}
		wait := pause.Next()
		c.cfg.Logger.Warn("campaign failed", "name", c.name, "again_in", wait, "error", err)
		retry.Sleep(ctx, wait)
	}
}

// rest goes back to campaigning after term: others have their turn first, unless
// it was lost.
func (c *Candidate) rest(ctx context.Context, term *Term) {
	c.mu.Lock()
	c.set(Campaigning, term)
	c.mu.Unlock()
	if !term.lost {
		retry.Sleep(ctx, c.cfg.ResignPause)
	}
}
