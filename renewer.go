package fencelock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/schedule"
)

// renewer keeps all locks of a Locker alive: it drives their state machines when
// their time comes and hands the renewals that fall due to the batcher. One timer
// stands for all locks; package schedule decides when it fires.
type renewer struct {
	engine   driver.Engine
	cfg      Config
	batcher  *batcher
	notifier *notifier

	acquiring atomic.Int64 // acquisitions under way

	mu    sync.Mutex // guards plan, timer, held, and wake of each lock
	plan  schedule.Schedule[*Lock]
	timer *time.Timer
	held  map[*Lock]struct{}
}

func newRenewer(engine driver.Engine, cfg Config) *renewer {
	r := &renewer{engine: engine, cfg: cfg, notifier: newNotifier(cfg, maxNotices), held: map[*Lock]struct{}{}}
	r.batcher = newBatcher(engine, r.renew)
	return r
}

// enter counts a lock among those that are held.
func (r *renewer) enter(l *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[l] = struct{}{}
}

// begin takes care of a lock from now on.
func (r *renewer) begin(l *Lock, now hold.Instant) { r.serve([]*Lock{l}, now) }

// lookAgain sets when a lock is to be looked at next.
func (r *renewer) lookAgain(l *Lock, act hold.Action, now hold.Instant) {
	if act.Wait <= 0 {
		return
	}
	at := now.Mono + act.Wait
	if act.Slack > 0 {
		at = (at + act.Slack).Truncate(act.Slack) // locks that come due together share a batch
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setTimer(r.plan.Set(&l.wake, at, now.Mono))
}

// setTimer does with the timer what the schedule wants. The caller holds mu.
func (r *renewer) setTimer(a schedule.Alarm) {
	switch a.Do {
	case schedule.Start:
		r.timer = time.AfterFunc(a.At-clock.Mono(), r.tick)
	case schedule.Move:
		r.timer.Reset(a.At - clock.Mono())
	case schedule.Leave:
	}
}

// remove forgets a lock whose hold has ended, and whose renewal may be under way.
func (r *renewer) remove(l *Lock, renewing bool) {
	r.mu.Lock()
	r.plan.Close(&l.wake)
	delete(r.held, l)
	r.mu.Unlock()
	if renewing {
		r.batcher.drop(l)
	}
}

// tick, called by a timer, looks at the locks whose time has come.
func (r *renewer) tick() {
	for due := r.takeDue(); len(due) > 0; due = r.takeDue() {
		r.serve(due, clock.Now())
	}
}

// takeDue takes the locks whose time has come off the schedule, or sets the timer.
func (r *renewer) takeDue() []*Lock {
	r.mu.Lock()
	defer r.mu.Unlock()
	due, a := r.plan.Due(clock.Now())
	r.setTimer(a)
	return due
}

// serve drives locks that are due, and has those renewed that want to be.
func (r *renewer) serve(due []*Lock, now hold.Instant) {
	var batch []dueRenewal
	for _, l := range due {
		act, _ := l.feed(hold.Event{Kind: hold.Tick}, now)
		r.lookAgain(l, act, now)
		if act.Renew {
			batch = append(batch, dueRenewal{l, act})
		}
	}
	if len(batch) > 0 {
		r.batcher.add(batch, now)
	}
}

// renew renews a batch.
func (r *renewer) renew(f *flight) {
	ctx, begun, sent := f.ctx, time.Now(), hold.Instant{}
	var errs []error                                         // as many as came, if a hook ends the goroutine
	defer func() { r.answered(ctx, f, errs, begun, sent) }() // or the locks would wait for ever
	ctx = start(ctx, r.cfg.Tracer.RenewStart, TraceRenewStart{Locks: len(f.locks)})
	begun, sent = time.Now(), clock.Now()
	errs = r.engine.Renew(ctx, f.leases)
}

// answered feeds the answers to the locks. What failed together is tried again
// together.
func (r *renewer) answered(ctx context.Context, f *flight, errs []error, begun time.Time, sent hold.Instant) {
	now, jitter := clock.Now(), rand.Float64()
	data := TraceRenewEnd{Locks: len(f.locks)}
	var again []dueRenewal
	for i, l := range f.locks {
		ev := answer(errs, i, sent)
		ev.Jitter = jitter
		act, stood := l.feed(ev, now)
		r.lookAgain(l, act, now)
		if act.Renew {
			again = append(again, dueRenewal{l, act})
		}
		if stood && ev.Kind != hold.Renewed { // a lock that was released meanwhile needs no renewal
			data.Failed++
		}
		if stood && ev.Kind == hold.Gone {
			data.Gone++
		}
		if left, held := l.left(now); held && (data.Left == 0 || left < data.Left) {
			data.Left = left
		}
		if stood && ev.Kind == hold.Failed && !act.Lost { // a loss tells why by itself
			r.notifier.renewalFailed(l.values(), l.lease, ev.Cause)
		}
	}
	if len(again) > 0 {
		r.batcher.add(again, now)
	}
	data.Took = time.Since(begun)
	r.notifier.renewEnd(ctx, data)
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
