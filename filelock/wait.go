package filelock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// The first polls follow each other quickly, since most waits are short. Then the pauses grow.
const (
	lookFirst  = 20 * time.Millisecond
	enterEvery = 10 * time.Second // attempts without any other reason
)

// wait blocks until the request is granted or ctx ends. It closes o. A poll outside the directory
// lock costs a few system calls and disturbs no other process. A new attempt under the lock is made
// only when a poll finds a reason, a notification arrives, or enterEvery has passed. Once a second
// the ticket is stamped to show that its process is not frozen.
func (r *request) wait(ctx context.Context, o *blocker) (driver.Grant, error) {
	defer func() { o.close() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	o.attend(&r.engine.waker, r.wake)
	stamped := time.Now() // creating the ticket stamped it
	entered, pause, due := time.Now(), lookFirst, r.mayGo(o)
	for {
		r.tell(o)
		if !due {
			timer.Reset(r.within(pause, o))
			select {
			case <-ctx.Done():
				return driver.Grant{}, ctx.Err()
			case <-r.wake:
				due = true
			case <-timer.C:
				pause = min(pause*3/2, o.every(r.fifo != nil))
				if time.Since(stamped) >= lookSeldom {
					stamp(r.file)
					stamped = time.Now()
				}
				due = time.Since(entered) > enterEvery || r.mayGo(o)
			}
		}
		if !due {
			continue
		}
		next, grant, err := r.attempt(ctx)
		if errors.Is(err, errStuck) {
			r.waited.Unavailable(ctx, err)
			continue // wait for it, as long as ctx allows
		}
		if next == nil || err != nil {
			return grant, err
		}
		o.close()
		o, entered, due = next, time.Now(), false
		o.attend(&r.engine.waker, r.wake)
		if !o.busy { // if it is busy, every poll is an attempt
			pause = lookFirst
		}
	}
}

// within returns how long to wait before the next poll, at most until the minimum hold ends,
// because that is not notified.
func (r *request) within(pause time.Duration, o *blocker) time.Duration {
	if o.until.IsZero() {
		return pause
	}
	return max(time.Millisecond, min(pause, time.Until(o.until)))
}

// every returns the longest pause between two polls.
func (o *blocker) every(notified bool) time.Duration {
	if notified && (o.waiting != "" || o.endNotified) {
		return lookSeldom
	}
	return lookOften
}

// mayGo reports whether to make an attempt. A lock that is held without a ticket can only be tested
// under the directory lock.
func (r *request) mayGo(o *blocker) bool {
	return o.busy || unlinked(r.file) || !o.until.IsZero() && !time.Now().Before(o.until) || o.cleared() || r.resized(o)
}

// resized reports whether the limit that is in the way has changed.
func (r *request) resized(o *blocker) bool {
	if !o.any {
		return false
	}
	d, err := r.engine.dir.open(encode(r.Name))
	if err != nil {
		return true
	}
	defer d.close()
	n, _, err := d.readNumber(limitFile)        // 0 if there is none
	return err != nil || n != int64(o.override) // the next attempt reports what is wrong
}

// tell records what is in the way, and calls OnWait once.
func (r *request) tell(o *blocker) {
	if held, _ := r.waited.Last(); held != o.held {
		r.waited.Held(o.held)
	}
	if r.OnWait != nil && !r.informed {
		r.informed = true
		r.OnWait(driver.WaitInfo{Position: o.position, Held: o.held})
	}
}
