package recordlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	callLimit     = 5 * time.Second      // how long a request to the store may take
	conflictPause = 5 * time.Millisecond // for each conflict in a row, of the longest pause after it
)

// worker makes the requests of this process for one name, one at a time. While it has jobs, waiters,
// or holders to notify, a goroutine applies all of its jobs to a copy of the record and stores that.
type worker struct {
	engine *Engine
	id     string // of this worker among those with waiters
	name   string
	key    string
	wake   chan struct{} // has a value if there is something new

	mu         sync.Mutex            // guards the fields below, and all jobs
	jobs       []*job                // urgent ones first, so that they make room for the others
	holds      map[string]*acquiring // the acquisitions of this process whose holders are notified of a loss
	grants     []*acquiring          // granted, and their callers do not know yet: Close withdraws them
	running    bool                  // the goroutine runs
	idle       time.Time             // when that ended, or the worker was asked for
	awaiting   bool                  // a goroutine awaits a change of the record
	unreported bool                  // no changes are reported

	state    *state // the last one that the store has shown; nil before the first. It is not changed
	version  string
	at       time.Time // when it arrived
	old      bool      // it must be read again
	next     time.Time // when it must be applied again without a change; zero if never
	seen     sightings // in it
	changed  time.Time // when its holders were last seen to change
	beat     time.Time // when the places of this process in it were renewed
	number   int64     // of the last request to the store
	answered int64     // of the last one that succeeded
}

// submit gives a job to the worker.
func (w *worker) submit(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(j)
}

// add is submit for a caller that holds mu.
func (w *worker) add(j *job) {
	j.done, j.ended, j.answer, j.after = make(chan struct{}), false, unapplied, w.number
	place := len(w.jobs)
	if j.urgent() {
		place = 0
	}
	w.jobs = slices.Insert(w.jobs, place, j)
	w.changed = time.Now()
	if !w.running {
		w.running = w.engine.tasks.Go(w.run) // ends when the worker has nothing to do, or with the engine
	}
	if !w.running {
		w.finish(j, errClosed)
	}
	w.notify()
}

// notify wakes the goroutine.
func (w *worker) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// finish ends a job. The caller holds mu.
func (w *worker) finish(j *job, err error) {
	j.err, j.ended = err, true
	close(j.done)
	w.jobs = slices.DeleteFunc(w.jobs, func(o *job) bool { return o == j })
}

// collected notes that the caller of a request knows its result, or that it does not get the lock. The
// caller holds mu.
func (w *worker) collected(a *acquiring) {
	w.grants = slices.DeleteFunc(w.grants, func(o *acquiring) bool { return o == a })
	w.notify()
}

// run works until there is nothing to do.
func (w *worker) run() {
	ctx, cancel := context.WithCancel(w.engine.tasks.Closed)
	defer cancel()
	conflicts, pause := 0, retry.NewBackoff(2*time.Millisecond, 500*time.Millisecond)
	for w.busy(ctx, time.Now()) {
		err := w.step(ctx)
		switch {
		case errors.Is(err, driver.ErrConflict):
			retry.Sleep(ctx, retry.Jitter(time.Duration(min(conflicts, 20))*conflictPause)) // the first may be due to an old state
			conflicts++
		case err != nil:
			w.fail(err, time.Now())
			pause.Wait(ctx)
		default:
			conflicts = 0
			pause.Reset()
			w.rest(ctx)
		}
	}
}

// busy removes the jobs whose callers have gone. When the engine is closed, only those are left that
// withdraw requests, until ctx ends. It reports whether the goroutine still has something to do.
func (w *worker) busy(ctx context.Context, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	closed := w.engine.tasks.Refuses()
	for _, j := range slices.Clone(w.jobs) {
		switch {
		case ctx.Err() != nil, closed && j.acquires == nil && !j.until.After(now):
			w.finish(j, errClosed)
		case closed && j.acquires != nil:
			w.withdraw(j.acquires, errClosed, now)
		case !j.until.IsZero() && !j.until.After(now):
			w.finish(j, errGone)
		}
	}
	if closed {
		clear(w.holds)
		for _, a := range slices.Clone(w.grants) {
			w.withdraw(a, errClosed, now)
		}
	}
	over := func(owner string, a *acquiring) bool { return now.After(w.seen[owner].at.Add(a.req.TTL)) }
	maps.DeleteFunc(w.holds, over)
	w.running, w.idle = ctx.Err() == nil && len(w.jobs)+len(w.holds)+len(w.grants) > 0, now
	return w.running
}

// fail tells the jobs that the store has failed. Those that a retry does not help are done, except for
// those that withdraw a request. If the record is too large for the store, these are the ones that have
// made it larger.
func (w *worker) fail(err error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	grows := func(j *job) bool { return !j.urgent() && j.writes() }
	large := errors.Is(err, driver.ErrInvalid) && slices.ContainsFunc(w.jobs, grows)
	for _, j := range slices.Clone(w.jobs) {
		switch {
		case !final(err):
			j.waited.Unavailable(context.Background(), err)
		case j.until.After(now), large && !grows(j): // it is repeated
		case j.acquires != nil:
			j.answer = unapplied // the last attempt has stored nothing
			w.withdraw(j.acquires, err, now)
		default:
			w.finish(j, err)
		}
	}
}

// final reports whether a retry after err is useless.
func final(err error) bool {
	return errors.Is(err, driver.ErrConfig) || errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnsupported)
}
