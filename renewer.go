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

// renewer renews all locks of a Locker: it drives their state machines when they are due and passes
// their renewals to the batcher. Package hold decides when a lock is renewed, and when it is lost. One
// timer serves all locks; package schedule decides when it fires.
type renewer struct {
	engine     driver.Engine
	engineName string
	cfg        Config
	batcher    *renewalBatcher
	notifier   *notifier

	acquiring atomic.Int64 // acquisitions in progress

	mu    sync.Mutex // guards plan, timer, held, and Lock.wake
	plan  schedule.Schedule[*Lock]
	timer *time.Timer
	held  map[*Lock]struct{}
}

func newRenewer(engine driver.Engine, cfg Config) *renewer {
	r := &renewer{engine: engine, engineName: engine.Traits().Engine, cfg: cfg, notifier: newNotifier(cfg, maxNotices), held: map[*Lock]struct{}{}}
	r.batcher = newRenewalBatcher(engine, r.renew)
	return r
}

// enter adds a lock to those that are held.
func (r *renewer) enter(l *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[l] = struct{}{}
}

// begin starts to renew a lock.
func (r *renewer) begin(l *Lock, now hold.Instant) { r.serve([]*Lock{l}, now) }

// lookAgain schedules the next step of a lock.
func (r *renewer) lookAgain(l *Lock, act hold.Action, now hold.Instant) {
	if act.Wait <= 0 {
		return
	}
	at := now.Mono + act.Wait
	if act.Slack > 0 {
		at = (at + act.Slack).Truncate(act.Slack) // locks that are due at about the same time share a batch
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setTimer(r.plan.Set(&l.wake, l.beforeMaximum(at), now.Mono))
}

// setTimer sets the timer as the schedule asks. The caller holds mu.
func (r *renewer) setTimer(a schedule.Alarm) {
	switch a.Do {
	case schedule.Start:
		r.timer = time.AfterFunc(a.At-clock.Mono(), r.tick)
	case schedule.Move:
		r.timer.Reset(a.At - clock.Mono())
	case schedule.Leave:
	}
}

// remove removes a lock whose hold has ended. A renewal of it may be in progress.
func (r *renewer) remove(l *Lock, renewing bool) {
	r.mu.Lock()
	r.plan.Close(&l.wake)
	delete(r.held, l)
	r.mu.Unlock()
	if renewing {
		r.batcher.drop(l)
	}
}

// tick is the timer's callback: it serves the locks that are due.
func (r *renewer) tick() {
	for due := r.takeDue(); len(due) > 0; due = r.takeDue() {
		r.serve(due, clock.Now())
	}
}

// takeDue takes the due locks off the schedule. If there are none, it sets the timer.
func (r *renewer) takeDue() []*Lock {
	r.mu.Lock()
	defer r.mu.Unlock()
	due, a := r.plan.Due(clock.Now())
	r.setTimer(a)
	return due
}

// serve steps the locks that are due and queues their renewals.
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

// renew sends one batch of renewals.
func (r *renewer) renew(f *flight) {
	ctx, begun, sent := f.ctx, time.Now(), hold.Instant{}
	var errs []error                                         // stays empty if a hook ends the goroutine
	defer func() { r.answered(ctx, f, errs, begun, sent) }() // deferred: otherwise the locks would wait for ever
	ctx = start(ctx, r.cfg.Tracer.RenewStart, TraceRenewStart{Locks: len(f.locks), Engine: r.engineName})
	begun, sent = time.Now(), clock.Now()
	errs = r.engine.Renew(ctx, f.leases)
}

// answered passes the answers to the locks. Renewals that failed together are retried together.
func (r *renewer) answered(ctx context.Context, f *flight, errs []error, begun time.Time, sent hold.Instant) {
	now, jitter := clock.Now(), rand.Float64()
	data := TraceRenewEnd{Locks: len(f.locks), Margin: 1, Engine: r.engineName}
	var again []dueRenewal
	for i, l := range f.locks {
		ev := answer(errs, i, sent)
		ev.Jitter = jitter
		if part, leased := l.margin(now); leased {
			data.Margin = min(data.Margin, part)
		}
		act, wasHeld := l.feed(ev, now)
		r.lookAgain(l, act, now)
		if act.Renew {
			again = append(again, dueRenewal{l, act})
		}
		if wasHeld && ev.Kind != hold.Renewed { // a lock released in the meantime needs no renewal
			data.Failed++
		}
		if wasHeld && ev.Kind == hold.Gone {
			data.Gone++
		}
		if left, held := l.left(now); held && (data.Left == 0 || left < data.Left) {
			data.Left = left
		}
		if wasHeld && ev.Kind == hold.Failed && !act.Lost { // a loss is reported with its reason anyway
			r.notifier.renewalFailed(l.values(), l.lease, ev.Cause)
		}
	}
	if len(again) > 0 {
		r.batcher.add(again, now)
	}
	data.Took = time.Since(begun)
	r.notifier.renewEnd(ctx, data)
}

// answer converts the engine's answer for lease i into an event.
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
