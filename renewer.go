package fencelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/schedule"
)

const (
	maxBatch   = 1000 // leases in one call of Engine.Renew
	maxFlights = 8    // such calls under way at once
)

// renewer keeps all locks of a Locker alive: it drives their state machines when
// their time comes and sends the renewals that fall due together as one batch.
// One timer stands for all locks; package schedule decides when it fires.
type renewer struct {
	engine  driver.Engine
	cfg     Config
	flights chan struct{} // counts calls of Renew

	mu    sync.Mutex // guards plan, timer, and wake of each lock
	plan  schedule.Schedule[*Lock]
	timer *time.Timer
}

func newRenewer(engine driver.Engine, cfg Config) *renewer {
	return &renewer{engine: engine, cfg: cfg, flights: make(chan struct{}, maxFlights)}
}

// advance feeds a lock an event, carries out what follows and schedules the
// lock's next wake-up.
func (r *renewer) advance(l *Lock, ev hold.Event, now hold.Instant) {
	act := l.step(ev, now)
	r.schedule(l, act, now)
	if act.Renew {
		go r.renew([]*Lock{l}) // ends when the engine has answered or the attempt limit is over
	}
}

// schedule sets when a lock is to be looked at next.
func (r *renewer) schedule(l *Lock, act hold.Action, now hold.Instant) {
	if act.Wait <= 0 {
		return
	}
	at := now.Mono + act.Wait
	if act.Slack > 0 {
		at = (at + act.Slack).Truncate(act.Slack) // locks that come due together share a batch
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(r.plan.Set(&l.wake, at, now.Mono))
}

// set does with the timer what the schedule wants. The caller holds mu.
func (r *renewer) set(a schedule.Alarm) {
	switch a.Do {
	case schedule.Start:
		r.timer = time.AfterFunc(a.At-time.Since(origin), r.tick)
	case schedule.Move:
		r.timer.Reset(a.At - time.Since(origin))
	case schedule.Leave:
	}
}

// remove forgets a lock whose hold has ended.
func (r *renewer) remove(l *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan.Close(&l.wake)
}

// tick, called by a timer, looks at the locks whose time has come.
func (r *renewer) tick() {
	for due := r.due(); len(due) > 0; due = r.due() {
		r.serve(due)
	}
}

// due takes the locks whose time has come off the schedule, or sets the timer.
func (r *renewer) due() []*Lock {
	r.mu.Lock()
	defer r.mu.Unlock()
	due, a := r.plan.Due(instant())
	r.set(a)
	return due
}

// serve drives the locks that are due, and sends their renewals: those that
// would be lost first go first.
func (r *renewer) serve(due []*Lock) {
	type renewal struct {
		lock *Lock
		left time.Duration
	}
	var batch []renewal
	for _, l := range due {
		now := instant()
		act := l.step(hold.Event{Kind: hold.Tick}, now)
		r.schedule(l, act, now)
		if act.Renew {
			batch = append(batch, renewal{l, act.Left})
		}
	}
	slices.SortFunc(batch, func(a, b renewal) int { return cmp.Compare(a.left, b.left) })
	for chunk := range slices.Chunk(batch, maxBatch) {
		locks := make([]*Lock, len(chunk))
		for i, r := range chunk {
			locks[i] = r.lock
		}
		go r.renew(locks) // ends when the engine has answered or the attempt limit is over
	}
}

// renew renews a batch and feeds the answers to the locks. An attempt takes no
// longer than a sixth of the shortest TTL, so that another one can follow.
func (r *renewer) renew(batch []*Lock) {
	r.flights <- struct{}{}
	defer func() { <-r.flights }()
	limit := batch[0].lease.TTL
	leases := make([]driver.Lease, len(batch))
	for i, l := range batch {
		leases[i] = l.lease
		limit = min(limit, l.lease.TTL)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit/6)
	defer cancel()
	ctx = start(ctx, r.cfg.Tracer.RenewStart, TraceRenewStart{Locks: len(batch)})
	begun, sent := time.Now(), instant()
	errs := r.engine.Renew(ctx, leases)
	data := TraceRenewEnd{Locks: len(batch)}
	for i, l := range batch {
		ev := answer(errs, i, sent)
		if ev.Kind != hold.Renewed {
			data.Failed++
			r.cfg.Logger.Warn("renewal failed", "name", l.lease.Name, "token", l.lease.Token, "error", ev.Cause)
		}
		r.advance(l, ev, instant())
	}
	data.Took = time.Since(begun)
	end(ctx, r.cfg.Tracer.RenewEnd, data)
}

// answer turns what the engine said of lease i into an event.
func answer(errs []error, i int, sent hold.Instant) hold.Event {
	err := errShortAnswer
	if i < len(errs) {
		err = errs[i]
	}
	switch {
	case err == nil:
		return hold.Event{Kind: hold.Renewed, Sent: sent}
	case errors.Is(err, ErrNotHeld):
		return hold.Event{Kind: hold.Gone, Cause: err}
	default:
		return hold.Event{Kind: hold.Failed, Cause: err}
	}
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// release asks the engine to release until it answers or ctx ends, with
// exponential backoff and jitter. After an attempt of unknown outcome, an
// acquisition that is not there any more is one that was released.
func (r *renewer) release(ctx context.Context, lease driver.Lease) error {
	unknown := false
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := r.engine.Release(ctx, lease)
		switch {
		case err == nil || unknown && errors.Is(err, ErrNotHeld):
			return nil
		case errors.Is(err, ErrNotHeld), final(err):
			return err
		}
		unknown = true
		if sleepFor(ctx, pause); ctx.Err() != nil {
			return fmt.Errorf("%w: releasing %q: %w", ErrUnavailable, lease.Name, err)
		}
	}
}

// sleepFor pauses for pause at most and half of it at least, or until ctx ends.
func sleepFor(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause/2 + rand.N(pause/2)):
	}
}
