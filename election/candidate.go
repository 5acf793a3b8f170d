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
	// ErrResigned is the cause of a term's end after Resign. Work that returns it also resigns: Run
	// then campaigns again.
	ErrResigned = errors.New("resigned")
	// ErrStuck means that the work of a term still runs although the term is over.
	ErrStuck = errors.New("the leader's work still runs")
)

// Config holds the settings of a Candidate. The zero Config is ready to use.
type Config struct {
	// Value is what this candidate publishes while it leads or waits, such as its address; see
	// [Observe]. It is stored as the note of the lock. Empty, the default, publishes the Locker's
	// note. [Term.Publish] changes it during a term.
	Value string

	// ShutdownTimeout is how long the work may continue after its context has ended before Run
	// returns ErrStuck. Unless the lock is lost, it is kept until the work returns, so nobody else
	// leads. This Candidate does not campaign in that time. A negative value means no limit. 0
	// means the default, 30 s.
	ShutdownTimeout time.Duration

	// Rank is the preference for this candidate: 0 is best. If a candidate of a better rank waits when
	// this one is granted the lock, this one gives way at once. If it leads, it resigns as soon as a
	// candidate of a better rank has waited for Settle. The rank is published in the note. With
	// fencelock.Options.MinHold, candidates do not give way at once, since the name would stay
	// closed. Ranks need an engine that can list. 0 is the default.
	Rank int

	// Settle is how long a candidate of a better rank must wait before a leader resigns to it. A
	// candidate that has led for less than Settle and a TTL has failed. After that it is not preferred
	// for twice Settle, and for twice as long after each further failure in a row, up to 64 times
	// Settle. 0 means the default, 30 s.
	Settle time.Duration

	// ResignPause is how long a candidate waits after a resignation before it campaigns again, so
	// that another one can become the leader. If it has resigned because of Rank, it waits only until
	// another one leads. A negative value means no pause. 0 means the default,
	// 1 s.
	ResignPause time.Duration

	// GiveUp is called when a campaign fails with an error that may pass, such as an unreachable
	// engine. If it returns true, Run or Terms returns the error; if not, the candidate tries again
	// after a pause. A program can stop in this way if the engine does not answer at its start. nil,
	// the default, means to retry until ctx ends.
	GiveUp func(error) bool

	// OnChange is called on every change of state, in order and from one goroutine. If it blocks,
	// only the next calls are delayed. nil, the default, means no call.
	OnChange func(Change)

	// OnLeader is called when Run or Terms begins, and on every change of who leads as [Observe]
	// yields it; the zero Leader means nobody. While the engine is unreachable, there is no call. It
	// is called from one goroutine, which ends before Run or Terms returns. If it blocks, changes are
	// skipped. nil, the default, means no call.
	OnLeader func(Leader)

	// Logger receives what a call cannot return: an unreachable engine, and errors of work whose
	// term was lost. nil, the default, means no logging.
	Logger *slog.Logger
}

const (
	defaultShutdown = 30 * time.Second
	defaultRest     = time.Second
	defaultSettle   = 30 * time.Second
	firstPause      = 100 * time.Millisecond // the first pause after a failed campaign
	lastPause       = 5 * time.Second
)

// Candidate campaigns for one name. It is safe for concurrent use, but only one call of Run or
// Terms may be active at a time.
type Candidate struct {
	locks *fencelock.Locker
	name  string
	cfg   Config

	others *precedence

	mu      sync.Mutex // guards what follows, and left of each term
	running bool       // Run or Terms is active, or fn is stuck
	stuck   bool       // Run returned ErrStuck and fn still runs
	state   State
	changes []Change  // changes not yet passed to OnChange
	telling bool      // whether tell is active
	term    *Term     // the latest term, until its work has returned
	lost    time.Time // when term was lost; zero before
	chosen  bool      // an operator asked for this leader, so it does not resign to a better rank
}

// New returns a candidate for name. It does no I/O. cfg may be nil.
//
// The terms use the TTL, the grace, the note, the minimum hold and OnWait of locks. The grace is
// the time for the work to stop before another candidate can lead; if it is 0, a fifth of the TTL
// is used. The wait limit, Shared, Limit and Weight of locks are ignored: a campaign has no time
// limit, and only one candidate leads.
func New(locks *fencelock.Locker, name string, cfg *Config) *Candidate {
	c := &Candidate{name: name, state: Idle}
	if cfg != nil {
		c.cfg = *cfg
	}
	c.cfg.ShutdownTimeout = cmp.Or(c.cfg.ShutdownTimeout, defaultShutdown)
	c.cfg.ResignPause = cmp.Or(c.cfg.ResignPause, defaultRest)
	c.cfg.Settle = cmp.Or(c.cfg.Settle, defaultSettle)
	if c.cfg.Logger == nil {
		c.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	o := locks.Options()
	o.Note = writeNote(cmp.Or(c.cfg.Value, o.Note), c.cfg.Rank)
	o.Grace = cmp.Or(o.Grace, o.TTL/5)        // time for the work to stop before another candidate can lead
	o.Wait = 0                                // a campaign keeps its place in the queue
	o.Shared, o.Limit, o.Weight = false, 0, 0 // otherwise several could lead
	o.Kind = fencelock.KindElection
	c.locks = locks.WithOnly(o)
	c.others = newPrecedence(c.cfg.Settle, o.TTL)
	return c
}

// Term returns the current term if this candidate leads at this moment, and nil otherwise. It is
// exact and does no I/O.
func (c *Candidate) Term() *Term {
	c.mu.Lock()
	term := c.term
	c.mu.Unlock()
	if term == nil || term.Err() != nil {
		return nil
	}
	return term
}

// Resign ends the context of the current term with the cause ErrResigned. It reports whether there
// was a term. It does not wait: the lock is released when the work has returned.
func (c *Candidate) Resign() bool {
	term := c.Term()
	if term != nil {
		term.cancel(ErrResigned)
	}
	return term != nil
}

// begin reserves the candidate for one call of Run or Terms.
func (c *Candidate) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stuck:
		return fmt.Errorf("%w: %q: end this process before another campaign", ErrStuck, c.name)
	case c.cfg.Rank < 0:
		return fmt.Errorf("%w: the rank %d of the candidate for %q is negative", fencelock.ErrInvalid, c.cfg.Rank, c.name)
	case c.cfg.Settle < 0 || c.cfg.Settle > longestSettle:
		return fmt.Errorf("%w: the settle time %v of the candidate for %q is not between 0 and %v", fencelock.ErrInvalid, c.cfg.Settle, c.name, longestSettle)
	case c.running:
		return fmt.Errorf("%w: the candidate for %q is already running: create another one with New", fencelock.ErrInvalid, c.name)
	}
	c.running = true
	c.set(Campaigning, nil)
	return nil
}

// end frees the candidate. term is the last term, or nil if it won none.
func (c *Candidate) end(term *Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.stuck = false, false
	c.set(Idle, term)
}

// abandon records that Run returns before the work of term. It returns false if the work has
// returned.
func (c *Candidate) abandon(term *Term) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck = !term.left
	return c.stuck
}

// leave records that the work of term has returned. It reports whether Run has returned before.
func (c *Candidate) leave(term *Term) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	term.left = true
	return c.stuck
}

// campaign waits until the candidate leads. It retries temporary errors until ctx ends or
// Config.GiveUp returns true.
func (c *Candidate) campaign(ctx context.Context) (*Term, error) {
	for pause := retry.NewBackoff(firstPause, lastPause); ; {
		lock, gave, err := c.acquire(ctx)
		switch {
		case gave:
			c.letIn(ctx)
			continue
		case err == nil:
			return c.enter(ctx, lock), nil
		case ctx.Err() != nil:
			return nil, errors.Join(err, context.Cause(ctx))
		case errors.Is(err, fencelock.ErrInvalid), errors.Is(err, fencelock.ErrUnsupported), errors.Is(err, fencelock.ErrConfig),
			c.cfg.GiveUp != nil && c.cfg.GiveUp(err):
			return nil, err
		}
		wait := pause.Next()
		c.cfg.Logger.Warn("campaign failed", "name", c.name, "again_in", wait, "error", err)
		retry.Sleep(ctx, wait)
	}
}

// acquire waits for the lock. It releases the lock again if a better candidate waits.
func (c *Candidate) acquire(ctx context.Context) (lock *fencelock.Lock, gave bool, err error) {
	if lock, err = c.locks.Acquire(ctx, c.name); err == nil && c.locks.Options().MinHold == 0 {
		gave, err = c.giveWayAtOnce(ctx, lock)
	}
	return lock, gave, err
}

// release releases a lock and logs a failure.
func (c *Candidate) release(lock *fencelock.Lock) error {
	err := lock.Release()
	if err != nil && !errors.Is(err, fencelock.ErrNotHeld) {
		c.cfg.Logger.Warn("release failed", "name", c.name, "term", lock.Token(), "error", err)
	}
	return err
}

// rest returns to campaigning after term, with a pause to let others lead first, unless the term
// was lost.
func (c *Candidate) rest(ctx context.Context, term *Term) {
	c.mu.Lock()
	c.set(Campaigning, term)
	c.mu.Unlock()
	switch {
	case term.lost:
	case c.others.gaveWay(term.lock.Owner()):
		c.letIn(ctx)
	default:
		retry.Sleep(ctx, c.cfg.ResignPause)
	}
}
