package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Looks at what is in the way begin close together, since what comes soon is the common
// case, and move apart.
const (
	lookFirst  = 20 * time.Millisecond
	enterEvery = 10 * time.Second // through the gate, without a reason
)

// wait blocks until the request is granted or ctx ends. It consumes o. A look outside the
// gate costs a few system calls and disturbs nobody; only what it finds, a ring, and now
// and then the time lead through the gate again. Every second the ticket is stamped, to
// show that its process does not stand still.
func (r *request) wait(ctx context.Context, o *blocker) (driver.Grant, error) {
	defer func() { o.close() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	o.attend(&r.engine.bells, r.bell)
	stamped := time.Now() // the ticket was made, and with it the stamp
	entered, pause, due := time.Now(), lookFirst, r.mayGo(o)
	for {
		r.tell(o)
		if !due {
			timer.Reset(r.within(pause, o))
			select {
			case <-ctx.Done():
				return driver.Grant{}, ctx.Err()
			case <-r.bell:
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
		if errors.Is(err, errGate) {
			r.heard.Unavailable(ctx, err)
			continue // rides it out, as ctx allows
		}
		if next == nil || err != nil {
			return grant, err
		}
		o.close()
		o, entered, due = next, time.Now(), false
		o.attend(&r.engine.bells, r.bell)
		if !o.busy { // then every look is a way through the gate
			pause = lookFirst
		}
	}
}

// within returns how long to wait for the next look: not beyond the end of a
// minimum hold, for which nobody rings.
func (r *request) within(pause time.Duration, o *blocker) time.Duration {
	if o.until.IsZero() {
		return pause
	}
	return max(time.Millisecond, min(pause, time.Until(o.until)))
}

// every returns how far apart the looks get.
func (o *blocker) every(bell bool) time.Duration {
	if bell && (o.waiting != "" || o.told) {
		return lookSeldom
	}
	return lookOften
}

// mayGo reports whether it is worth going through the gate. A lock that is held without a
// ticket can only be tried there.
func (r *request) mayGo(o *blocker) bool {
	return o.busy || unlinked(r.file) || !o.until.IsZero() && !time.Now().Before(o.until) || o.cleared() || r.resized(o)
}

// resized reports whether the limit that is in the way has changed.
func (r *request) resized(o *blocker) bool {
	if !o.any {
		return false
	}
	b, err := os.ReadFile(filepath.Join(r.dir, limitFile))
	if errors.Is(err, os.ErrNotExist) {
		return o.override != 0
	}
	n, ok := parseNumber(b)
	return err != nil || !ok || n != int64(o.override) // the gate tells what is wrong with it
}

// tell notes what is in the way, and reports once that the request waits.
func (r *request) tell(o *blocker) {
	if held, _ := r.heard.Last(); held != o.held {
		r.heard.Held(o.held)
	}
	if r.OnWait != nil && !r.told {
		r.told = true
		r.OnWait(driver.WaitInfo{Position: o.position, Held: o.held})
	}
}
