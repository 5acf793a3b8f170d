package filelock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// How often a waiter looks by itself. The first bounds how long the lock of a
// crashed holder stays unused: a crash makes no event.
const (
	probeEvery = 20 * time.Millisecond
	stampEvery = 250 * time.Millisecond
	lookEvery  = 400 * time.Millisecond
)

// wait blocks until the request is granted or ctx ends. It consumes o.
func (r *request) wait(ctx context.Context, o *obstacle) (driver.Grant, error) {
	defer func() { o.close() }()
	woken := make(chan string, 16)
	sub := r.engine.hub.subscribe(r.engine.dirOf(r.Name), func(base string) {
		select {
		case woken <- base:
		default: // enough of them to look again
		}
	})
	defer r.engine.hub.unsubscribe(sub)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	var stamped time.Time
	looked, look := time.Now(), r.mayGo(o) // the way may be clear since before we subscribed
	for {
		r.tell(o)
		if !look {
			select {
			case <-ctx.Done():
				return driver.Grant{}, ctx.Err()
			case base := <-woken:
				look = o.clearedBy(base)
			case <-tick.C:
				if time.Since(stamped) > stampEvery {
					stamp(r.file)
					stamped = time.Now()
				}
				look = time.Since(looked) > lookEvery || r.mayGo(o)
			}
		}
		if !look {
			continue
		}
		next, grant, err := r.attempt(ctx)
		if errors.Is(err, errGate) {
			continue // rides it out, as ctx allows
		}
		if next == nil || err != nil {
			return grant, err
		}
		o.close()
		o, looked, look = next, time.Now(), false
	}
}

// mayGo reports whether it is worth going through the gate.
func (r *request) mayGo(o *obstacle) bool {
	return o.busy || !o.until.IsZero() && !time.Now().Before(o.until) || o.gone()
}

// clearedBy reports whether the removal of a file may have cleared the way.
func (o *obstacle) clearedBy(base string) bool {
	t, ok := parseTicket(base)
	return base == "lock" || ok && (o.any && t.held || t.owner == o.owner)
}

// tell reports a new position.
func (r *request) tell(o *obstacle) {
	r.held = o.held
	if r.Waiting != nil && o.position != r.told {
		r.Waiting(driver.WaitInfo{Position: o.position, Held: o.held})
	}
	r.told = o.position
}
