package filelock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// How often a waiter looks by itself. The first bounds how long the lock of a
// crashed holder stays unused: a crash makes no event. The last is rare because
// a process that is stopped inside the gate stops everybody else.
const (
	probeEvery = 20 * time.Millisecond // at the tickets in the way
	stampEvery = 250 * time.Millisecond
	countEvery = 400 * time.Millisecond // its place in the queue
	enterEvery = 10 * time.Second       // through the gate, without a reason
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
	var stamped, counted time.Time
	entered, look := time.Now(), r.mayGo(o) // the way may be clear since before we subscribed
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
				if time.Since(counted) > countEvery {
					r.count(o)
					counted = time.Now()
				}
				look = time.Since(entered) > enterEvery || r.mayGo(o)
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
		o, entered, look = next, time.Now(), false
	}
}

// count brings the position up to date. It stays outside the gate, so it may
// count a ticket that is about to go; nothing but what people see depends on it.
func (r *request) count(o *obstacle) {
	all, _, err := listTickets(r.dir)
	if err != nil {
		return
	}
	o.position = 1
	for _, t := range all {
		if !t.held && t.seq < r.ticket.seq {
			o.position++
		}
	}
}

// mayGo reports whether it is worth going through the gate.
func (r *request) mayGo(o *obstacle) bool {
	return o.busy || unlinked(r.file) || !o.until.IsZero() && !time.Now().Before(o.until) || o.gone()
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
