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
	blindPause = 50 * time.Millisecond // between looks at the store's clock, which another desk may read
)

// rest waits until there is something to do: a new job, a change of the record, the end of a lease,
// or a read that is due.
func (d *desk) rest(ctx context.Context) {
	poll, until := d.plan()
	if d.engine.awaiter != nil && !poll.IsZero() {
		d.follow(ctx)
	}
	if poll.IsZero() && until.IsZero() {
		return // there is nothing left
	}
	if until.IsZero() || !poll.IsZero() && poll.Before(until) {
		until = poll
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-d.wake:
		return
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	if !poll.IsZero() && !time.Now().Before(poll) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.last.old = true
	}
}

// plan returns when to read the record, and when something is due that needs no read. Zero means
// never.
func (d *desk) plan() (poll, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.old { // read it at once
		return time.Now(), time.Time{}
	}
	for _, h := range d.holds {
		pause := min(max(h.ttl/holdPolls, minTTL), holdPoll)
		earlier(&poll, d.last.at.Add(d.jittered(pause)))
	}
	for _, j := range d.jobs {
		switch a := j.acquires; {
		case j.answer == blind:
			earlier(&until, time.Now().Add(blindPause))
		case a != nil:
			earlier(&poll, d.last.at.Add(d.jittered(d.pauseOf(a))))
		default:
			earlier(&until, time.Now()) // it has just arrived
		}
	}
	if len(d.jobs) == 0 {
		return poll, until
	}
	if !d.next.IsZero() {
		earlier(&until, d.next)
	}
	return poll, until
}

// earlier makes t the earlier one of two times. Zero means never.
func earlier(t *time.Time, o time.Time) {
	if t.IsZero() || o.Before(*t) {
		*t = o
	}
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

// jittered returns a pause with jitter, or a long one if changes are reported.
func (d *desk) jittered(pause time.Duration) time.Duration {
	if d.engine.awaiter != nil {
		pause = watchPause
	}
	return pause*3/4 + retry.Jitter(pause/2)
}

// follow awaits the next change of the record in the background.
func (d *desk) follow(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watches {
		return
	}
	version := d.last.version
	d.watches = d.engine.start(func() { // ends when the record has changed, or with run
		pause := retry.NewBackoff(100*time.Millisecond, 5*time.Second)
		await := func() (driver.Record, error) {
			ctx, cancel := context.WithTimeout(ctx, watchLimit)
			defer cancel()
			return d.engine.awaiter.Await(ctx, d.key, version)
		}
		rec, err := await()
		for err != nil && pause.Wait(ctx) {
			rec, err = await()
		}
		d.hear(version, rec, err, time.Now())
	})
}

// hear keeps a change that was reported after a version, unless the desk has seen another one
// since. An older state than the last one could lack holders of this process. A report may be older
// than its question, so it refuses no job that the last state does not.
func (d *desk) hear(version string, rec driver.Record, err error, arrived time.Time) {
	st, wrong := decode(d.name, rec.Value)
	var lost []func()
	defer func() { callAll(lost) }() // without the mutex
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watches = false
	d.ring()
	switch {
	case err != nil || d.last.version != version || d.last.old:
	case wrong != nil:
		d.last.old = true // reading it returns the error
	default:
		lost = d.took(st, rec.Version, d.last.number, arrived)
	}
}
