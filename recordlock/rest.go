package recordlock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	farPlaces  = 8                // waiters from this place on poll equally often
	holdPolls  = 5                // reads in a TTL that notice that a lock was broken
	holdPoll   = 10 * time.Second // the longest pause between them
	watchPause = 10 * time.Second // between reads beside an Awaiter, whose watch may hang
)

// rest waits until there is something to do: a new job, a change of the record, the end of a lease,
// or a read that is due.
func (d *desk) rest(ctx context.Context) {
	poll, until := d.plan()
	var news <-chan news
	if d.engine.awaiter != nil && !poll.IsZero() {
		news = d.follow(ctx)
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
	case n := <-news:
		d.hear(n)
		return
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	if !poll.IsZero() && !time.Now().Before(poll) {
		d.forget()
	}
}

// plan returns when to read the record, and when something is due that needs no read. Zero means
// never.
func (d *desk) plan() (poll, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	earlier := func(t *time.Time, o time.Time) {
		if t.IsZero() || o.Before(*t) {
			*t = o
		}
	}
	if d.last.state == nil { // read it at once
		return time.Now(), time.Time{}
	}
	for _, h := range d.holds {
		pause := min(max(h.ttl/holdPolls, minTTL), holdPoll)
		earlier(&poll, d.last.at.Add(d.jittered(pause)))
	}
	for _, j := range d.jobs {
		if a := j.acquires; a != nil {
			earlier(&poll, d.last.at.Add(d.jittered(d.pauseOf(a))))
		} else {
			earlier(&until, time.Now()) // it has just arrived
		}
	}
	if len(d.jobs) == 0 {
		return poll, until
	}
	if !d.next.IsZero() {
		earlier(&until, d.next)
	}
	if l, ok := d.last.state.Clients[d.engine.id]; ok {
		earlier(&until, d.beat.Add(micros(l.TTL)/3))
	}
	return poll, until
}

// pauseOf returns the pause between two reads for a waiter. It grows with the time for which the
// holders have not changed and with the place of the waiter.
func (d *desk) pauseOf(a *acquiring) time.Duration {
	place := d.last.state.place(a.entry.Owner)
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

// watch waits for one change of a record.
type watch struct {
	version string
	news    chan news
	cancel  context.CancelFunc // nil if there is none
}

// news is a change that a watch has reported.
type news struct {
	record  driver.Record
	number  int64 // of the request
	arrived time.Time
}

// follow returns a channel that gets the next change of the record.
func (d *desk) follow(ctx context.Context) <-chan news {
	d.mu.Lock()
	version := d.last.version
	d.number++
	number := d.number
	d.mu.Unlock()
	w := &d.watch
	if w.cancel != nil && w.version == version {
		return w.news
	}
	w.stop()
	ctx, w.cancel = context.WithCancel(ctx)
	w.version, w.news = version, make(chan news, 1)
	out := w.news
	d.engine.start(func() { // ends when the record has changed, or when the desk cancels it
		for pause := retry.NewBackoff(100*time.Millisecond, 5*time.Second); ; {
			rec, err := d.engine.awaiter.Await(ctx, d.key, version)
			if err == nil {
				out <- news{rec, number, time.Now()}
				return
			}
			if !pause.Wait(ctx) {
				return
			}
		}
	})
	return out
}

// hear keeps a reported change, unless the desk has seen another one since. A state that is older
// than one that the desk has seen could lack its holders.
func (d *desk) hear(n news) {
	version := d.watch.version
	d.watch.stop()
	d.mu.Lock()
	current := d.last.state != nil && d.last.version == version
	d.mu.Unlock()
	if !current || d.took(n.record, n.number, n.arrived, nil) != nil {
		d.forget()
	}
}

// stop ends the watch.
func (w *watch) stop() {
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}
