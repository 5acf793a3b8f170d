package fencelock

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
)

const (
	maxBatch   = 1000             // leases in one call of Engine.Renew
	maxFlights = 8                // such calls under way at once
	maxSleep   = time.Second      // how late a jump of another clock is noticed
	minSleep   = time.Millisecond // how often a busy machine may set a late timer again
)

// keeper keeps all locks of a Locker alive: it drives their state machines when
// their time comes and sends the renewals that fall due together as one batch.
// One timer stands for all locks. A lock that is released leaves it running: a
// timer that fires early is harmless, and most locks are held for less long
// than it takes to stop one.
type keeper struct {
	engine  driver.Engine
	cfg     Config
	flights chan struct{} // counts calls of Renew

	mu    sync.Mutex // guards queue, timer, fires, awake, last, and wake of each lock
	queue wakes
	timer *time.Timer
	fires time.Duration // when timer fires, since origin
	awake bool          // tick is at work, and will set the timer
	last  hold.Instant  // when the locks were last looked at
}

func newKeeper(engine driver.Engine, cfg Config) *keeper {
	return &keeper{engine: engine, cfg: cfg, flights: make(chan struct{}, maxFlights)}
}

// advance feeds a lock an event, carries out what follows and schedules the
// lock's next wake-up.
func (k *keeper) advance(l *Lock, ev hold.Event, now hold.Instant) {
	act := l.step(ev, now)
	k.schedule(l, act, now)
	if act.Renew {
		go k.renew([]*Lock{l}) // ends when the engine has answered or the attempt limit is over
	}
}

// schedule sets when a lock is to be looked at next.
func (k *keeper) schedule(l *Lock, act hold.Action, now hold.Instant) {
	if act.Wait <= 0 {
		return
	}
	at := now.Mono + act.Wait
	if act.Slack > 0 {
		at = (at + act.Slack).Truncate(act.Slack) // locks that come due together share a batch
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.wake.done {
		return
	}
	k.queue.set(l, at)
	k.arm(now)
}

// arm sees to it that the timer fires when the first lock is due, or earlier.
// The caller holds mu.
func (k *keeper) arm(now hold.Instant) {
	first := max(now.Mono+minSleep, min(k.queue[0].wake.at, now.Mono+maxSleep))
	switch {
	case k.awake:
	case k.fires <= now.Mono || k.fires > now.Mono+maxSleep: // fired, or set by the clock of a test that is over
		k.fires, k.timer = first, time.AfterFunc(first-now.Mono, k.tick)
	case first < k.fires:
		k.fires = first
		k.timer.Reset(first - now.Mono)
	}
}

// remove forgets a lock whose hold has ended.
func (k *keeper) remove(l *Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.wake.done = true
	if l.wake.queued {
		heap.Remove(&k.queue, l.wake.index)
	}
}

// tick, called by a timer, looks at the locks whose time has come. Two at once
// do no harm.
func (k *keeper) tick() {
	for due := k.due(); len(due) > 0; due = k.due() {
		k.serve(due)
	}
}

// due takes the locks whose time has come off the queue; all of them if a clock
// jumped, since their times were reckoned by the monotonic one. If there are
// none it sets the timer, unless no lock is left.
func (k *keeper) due() (due []*Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := instant()
	jumped := now.Jumped(k.last, lateness)
	k.last, k.awake = now, true
	for len(k.queue) > 0 && (jumped || k.queue[0].wake.at <= now.Mono) {
		due = append(due, heap.Pop(&k.queue).(*Lock))
	}
	if len(due) > 0 {
		return due
	}
	k.awake = false
	if len(k.queue) > 0 {
		k.arm(now)
	}
	return nil
}

// serve drives the locks that are due, and sends their renewals: those that
// would be lost first go first.
func (k *keeper) serve(due []*Lock) {
	type renewal struct {
		lock *Lock
		left time.Duration
	}
	var batch []renewal
	for _, l := range due {
		now := instant()
		act := l.step(hold.Event{Kind: hold.Tick}, now)
		k.schedule(l, act, now)
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
		go k.renew(locks) // ends when the engine has answered or the attempt limit is over
	}
}

// renew renews a batch and feeds the answers to the locks. An attempt takes no
// longer than a sixth of the shortest TTL, so that another one can follow.
func (k *keeper) renew(batch []*Lock) {
	k.flights <- struct{}{}
	defer func() { <-k.flights }()
	limit := batch[0].lease.TTL
	leases := make([]driver.Lease, len(batch))
	for i, l := range batch {
		leases[i] = l.lease
		limit = min(limit, l.lease.TTL)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit/6)
	defer cancel()
	ctx = start(ctx, k.cfg.Tracer.RenewStart, TraceRenewStart{Locks: len(batch)})
	begun, sent := time.Now(), instant()
	errs := k.engine.Renew(ctx, leases)
	data := TraceRenewEnd{Locks: len(batch)}
	for i, l := range batch {
		ev := answer(errs, i, sent)
		if ev.Kind != hold.Renewed {
			data.Failed++
			k.cfg.Logger.Warn("renewal failed", "name", l.lease.Name, "token", l.lease.Token, "error", ev.Cause)
		}
		k.advance(l, ev, instant())
	}
	data.Took = time.Since(begun)
	end(ctx, k.cfg.Tracer.RenewEnd, data)
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
func (k *keeper) release(ctx context.Context, lease driver.Lease) error {
	unknown := false
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := k.engine.Release(ctx, lease)
		switch {
		case err == nil || unknown && errors.Is(err, ErrNotHeld):
			return nil
		case errors.Is(err, ErrNotHeld), errors.Is(err, ErrInvalid), errors.Is(err, ErrUnsupported):
			return err
		}
		unknown = true
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: releasing %q: %w", ErrUnavailable, lease.Name, err)
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

// wake is when a lock is to be looked at next.
type wake struct {
	at     time.Duration // since origin, by the monotonic clock
	index  int           // in the queue, while queued
	queued bool
	done   bool // the hold is over: never queue it again
}

// wakes is a heap of locks, the next to be looked at first.
type wakes []*Lock

func (w wakes) Len() int           { return len(w) }
func (w wakes) Less(i, j int) bool { return cmp.Less(w[i].wake.at, w[j].wake.at) }

func (w wakes) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].wake.index, w[j].wake.index = i, j
}

// Push appends a lock; use set.
func (w *wakes) Push(x any) {
	l := x.(*Lock)
	l.wake.index, l.wake.queued = len(*w), true
	*w = append(*w, l)
}

// Pop takes the last lock; use heap.Pop.
func (w *wakes) Pop() any {
	old := *w
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	l.wake.queued = false
	return l
}

// set puts a lock at its place for a wake-up at at.
func (w *wakes) set(l *Lock, at time.Duration) {
	l.wake.at = at
	if l.wake.queued {
		heap.Fix(w, l.wake.index)
		return
	}
	heap.Push(w, l)
}
