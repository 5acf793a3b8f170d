package recordlock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	farPlaces  = 8                     // waiters from this place on poll equally often
	holdPolls  = 5                     // reads in a TTL that notice that a lock was broken
	holdPoll   = 10 * time.Second      // the longest pause between them
	watchPause = 10 * time.Second      // between reads beside an Awaiter, whose watch may hang
	watchLimit = time.Minute           // how long it may report nothing until it is asked again
	watchRetry = time.Second           // the pause after a failure of it
	clockPause = 50 * time.Millisecond // between looks at the store's clock, which another worker may read
)

// rest waits until there is something to do: a new job, a change of the record, the end of a lease,
// or a read that is due.
func (w *worker) rest(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	work := len(w.jobs) + len(w.holds)
	if w.old || work+len(w.grants) == 0 {
		return
	}
	if work > 0 && w.engine.awaiter != nil && !w.awaiting {
		w.follow(ctx)
	}
	pause := w.poll()
	poll := w.at.Add(pause*3/4 + retry.Jitter(pause/2))
	wait := time.Until(earliest(poll, w.next))
	w.mu.Unlock()
	retry.Nap(ctx, wait, w.wake)
	w.mu.Lock()
	w.old = w.old || !time.Now().Before(poll)
}

// earliest returns the earlier one of two times. Zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// poll returns the pause between two reads of the record. The caller holds mu.
func (w *worker) poll() time.Duration {
	if w.engine.awaiter != nil && !w.unreported {
		return watchPause
	}
	pause := time.Hour
	for _, a := range w.holds {
		pause = min(pause, max(a.req.TTL/holdPolls, minTTL), holdPoll)
	}
	for _, j := range w.jobs {
		if j.acquires != nil {
			pause = min(pause, w.pauseOf(j.acquires))
		}
	}
	return pause
}

// pauseOf returns the pause between two reads for a waiter. It grows with the time for which the
// holders have not changed and with the place of the waiter.
func (w *worker) pauseOf(a *acquiring) time.Duration {
	place := find(w.state.Waiters, a.me.Owner)
	if place < 0 || place >= farPlaces {
		place = farPlaces - 1
	}
	cfg := w.engine.cfg
	pause := min(max(time.Since(w.changed)/8, cfg.MinPoll), cfg.MaxPoll)
	return pause * time.Duration(place+1)
}

// follow awaits the next change of the record in the background. The caller holds mu.
func (w *worker) follow(ctx context.Context) {
	version := w.version
	w.awaiting = w.engine.tasks.Go(func() { // ends when the record has changed, or with run
		limited, cancel := context.WithTimeout(ctx, watchLimit)
		defer cancel()
		rec, err := w.engine.awaiter.Await(limited, w.key, version)
		if err != nil {
			retry.Sleep(ctx, w.watchFailed(limited.Err() == nil))
		}
		w.keepReported(version, rec, err)
	})
}

// watchFailed makes the worker poll if no changes are reported, and returns the pause until it asks
// for them again. Each question is a read that no limit of the engine holds back.
func (w *worker) watchFailed(yes bool) (pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if pause = watchRetry; w.unreported {
		pause = watchPause
	}
	if yes != w.unreported {
		w.unreported = yes
		w.notify()
	}
	return pause
}

// keepReported keeps a change that was reported after a version, unless the worker has seen another
// one since. An older state than the last one could lack holders of this process. A report may be
// older than its question, so it refuses no job that the last state does not.
func (w *worker) keepReported(version string, rec driver.Record, err error) {
	st, wrong := decode(w.name, rec.Value)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awaiting = false
	w.unreported = w.unreported && err != nil
	w.notify()
	switch {
	case err != nil || w.version != version || w.old:
	case wrong != nil:
		w.old = true // reading it returns the error
	default:
		w.took(st, rec.Version, time.Now())
	}
}
