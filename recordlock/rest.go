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
func (d *worker) rest(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	work := len(d.jobs) + len(d.holds)
	if d.old || work+len(d.grants) == 0 {
		return
	}
	if work > 0 && d.engine.awaiter != nil && !d.awaiting {
		d.follow(ctx)
	}
	pause := d.poll()
	poll := d.at.Add(pause*3/4 + retry.Jitter(pause/2))
	wait := time.Until(earliest(poll, d.next))
	d.mu.Unlock()
	retry.Nap(ctx, wait, d.wake)
	d.mu.Lock()
	d.old = d.old || !time.Now().Before(poll)
}

// earliest returns the earlier one of two times. Zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// poll returns the pause between two reads of the record. The caller holds mu.
func (d *worker) poll() time.Duration {
	if d.engine.awaiter != nil && !d.unreported {
		return watchPause
	}
	pause := time.Hour
	for _, a := range d.holds {
		pause = min(pause, max(a.req.TTL/holdPolls, minTTL), holdPoll)
	}
	for _, j := range d.jobs {
		if j.acquires != nil {
			pause = min(pause, d.pauseOf(j.acquires))
		}
	}
	return pause
}

// pauseOf returns the pause between two reads for a waiter. It grows with the time for which the
// holders have not changed and with the place of the waiter.
func (d *worker) pauseOf(a *acquiring) time.Duration {
	place := find(d.state.Waiters, a.me.Owner)
	if place < 0 || place >= farPlaces {
		place = farPlaces - 1
	}
	cfg := d.engine.cfg
	pause := min(max(time.Since(d.changed)/8, cfg.MinPoll), cfg.MaxPoll)
	return pause * time.Duration(place+1)
}

// follow awaits the next change of the record in the background. The caller holds mu.
func (d *worker) follow(ctx context.Context) {
	version := d.version
	d.awaiting = d.engine.tasks.Go(func() { // ends when the record has changed, or with run
		limited, cancel := context.WithTimeout(ctx, watchLimit)
		defer cancel()
		rec, err := d.engine.awaiter.Await(limited, d.key, version)
		if err != nil {
			retry.Sleep(ctx, d.watchFailed(limited.Err() == nil))
		}
		d.keepReported(version, rec, err)
	})
}

// watchFailed makes the worker poll if no changes are reported, and returns the pause until it asks for them
// again. Each question is a read that no limit of the engine holds back.
func (d *worker) watchFailed(yes bool) (pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if pause = watchRetry; d.unreported {
		pause = watchPause
	}
	if yes != d.unreported {
		d.unreported = yes
		d.notify()
	}
	return pause
}

// keepReported keeps a change that was reported after a version, unless the worker has seen another one
// since. An older state than the last one could lack holders of this process. A report may be older
// than its question, so it refuses no job that the last state does not.
func (d *worker) keepReported(version string, rec driver.Record, err error) {
	st, wrong := decode(d.name, rec.Value)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awaiting = false
	d.unreported = d.unreported && err != nil
	d.notify()
	switch {
	case err != nil || d.version != version || d.old:
	case wrong != nil:
		d.old = true // reading it returns the error
	default:
		d.took(st, rec.Version, time.Now())
	}
}
