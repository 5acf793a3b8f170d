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
	blindPause = 50 * time.Millisecond // between looks at the store's clock, which another desk may read
)

// rest waits until there is something to do: a new job, a change of the record, the end of a lease,
// or a read that is due.
func (d *desk) rest(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.old || len(d.jobs)+len(d.holds) == 0 {
		return
	}
	if d.engine.awaiter != nil && !d.watches {
		d.follow(ctx)
	}
	poll := d.poll()
	wait := time.Until(earliest(poll, d.next))
	d.mu.Unlock()
	retry.Nap(ctx, wait, d.wake)
	d.mu.Lock()
	d.last.old = d.last.old || !poll.IsZero() && !time.Now().Before(poll)
}

// earliest returns the earlier one of two times. Zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// poll returns when to read the record. The caller holds mu.
func (d *desk) poll() (at time.Time) {
	for _, h := range d.holds {
		at = earliest(at, d.after(min(max(h.ttl/holdPolls, minTTL), holdPoll)))
	}
	for _, j := range d.jobs {
		if j.acquires != nil {
			at = earliest(at, d.after(d.pauseOf(j.acquires)))
		}
	}
	return at
}

// pauseOf returns the pause between two reads for a waiter. It grows with the time for which the
// holders have not changed and with the place of the waiter.
func (d *desk) pauseOf(a *acquiring) time.Duration {
	place := find(d.last.state.Waiters, a.me.Owner)
	if place < 0 || place >= farPlaces {
		place = farPlaces - 1
	}
	cfg := d.engine.cfg
	pause := min(max(time.Since(d.changed)/8, cfg.MinPoll), cfg.MaxPoll)
	return pause * time.Duration(place+1)
}

// after returns a time that is a pause after the last answer, with jitter. The pause is a long one if
// changes are reported.
func (d *desk) after(pause time.Duration) time.Time {
	if d.engine.awaiter != nil {
		pause = watchPause
	}
	return d.last.at.Add(pause*3/4 + retry.Jitter(pause/2))
}

// follow awaits the next change of the record in the background. The caller holds mu.
func (d *desk) follow(ctx context.Context) {
	version := d.last.version
	d.watches = d.engine.start(func() { // ends when the record has changed, or with run
		limited, cancel := context.WithTimeout(ctx, watchLimit)
		defer cancel()
		rec, err := d.engine.awaiter.Await(limited, d.key, version)
		if err != nil {
			retry.Sleep(ctx, watchRetry)
		}
		d.hear(version, rec, err)
	})
}

// hear keeps a change that was reported after a version, unless the desk has seen another one
// since. An older state than the last one could lack holders of this process. A report may be older
// than its question, so it refuses no job that the last state does not.
func (d *desk) hear(version string, rec driver.Record, err error) {
	st, wrong := decode(d.name, rec.Value)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watches = false
	d.ring()
	switch {
	case err != nil || d.last.version != version || d.last.old:
	case wrong != nil:
		d.last.old = true // reading it returns the error
	default:
		d.took(st, rec.Version)
	}
}
