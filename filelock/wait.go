package filelock

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// How often a waiter looks by itself. The first bounds how long the lock of a
// crashed holder stays unused: a crash makes no event. The last is rare because
// a process that is stopped inside the gate stops everybody else.
const (
	probeEvery = 20 * time.Millisecond  // at the tickets in the way, if they hold
	queueEvery = 100 * time.Millisecond // at the one in the way, if it waits
	stampEvery = 250 * time.Millisecond
	countEvery = 400 * time.Millisecond // its place in the queue
	enterEvery = 10 * time.Second       // through the gate, without a reason
)

// wait blocks until the request is granted or ctx ends. It consumes o.
func (r *request) wait(ctx context.Context, o *obstacle) (driver.Grant, error) {
	defer func() { o.close() }()
	l := &lookout{hub: &r.engine.hub, dir: r.dir, woken: make(chan string, 16), tick: time.NewTicker(probeEvery)}
	defer l.close()
	var stamped, counted time.Time
	entered, look := time.Now(), l.turn(o) && r.mayGo(o)
	for {
		r.tell(o)
		if !look {
			select {
			case <-ctx.Done():
				return driver.Grant{}, ctx.Err()
			case base := <-l.woken:
				look = o.clearedBy(base) || base == "" && r.mayGo(o)
			case <-l.tick.C:
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
		o, entered, look = next, time.Now(), l.turn(next) && r.mayGo(next)
	}
}

// A lookout hears of what may clear the way: of one waiter's ticket while that is
// in the way, so that what others do wakes nobody else, or of the whole name.
type lookout struct {
	hub   *hub
	dir   string
	woken chan string
	tick  *time.Ticker
	sub   *sub
}

// turn makes the lookout look at o. It reports whether it has looked elsewhere
// until now, so that the way may have been cleared unseen.
func (l *lookout) turn(o *obstacle) bool {
	path, every := l.dir, probeEvery
	if o.waiting != "" {
		path, every = o.waiting, queueEvery
	}
	if l.sub != nil && l.sub.path == path {
		return false
	}
	old := l.sub
	l.sub = l.hub.subscribe(path, func(base string) {
		select {
		case l.woken <- base:
		default: // enough of them to look again
		}
	})
	if old != nil {
		l.hub.unsubscribe(old)
	}
	l.tick.Reset(every)
	return true
}

func (l *lookout) close() {
	l.tick.Stop()
	l.hub.unsubscribe(l.sub)
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
	return o.busy || unlinked(r.file) || !o.until.IsZero() && !time.Now().Before(o.until) || o.gone() || r.resized(o)
}

// resized reports whether the limit that is in the way has changed.
func (r *request) resized(o *obstacle) bool {
	if !o.any {
		return false
	}
	override, err := readLimit(filepath.Join(r.dir, limitFile))
	return err != nil || override != o.override // the gate tells what is wrong with it
}

// clearedBy reports whether a file that came or went may have cleared the way.
func (o *obstacle) clearedBy(base string) bool {
	t, ok := parseTicket(base)
	return base == "lock" || base == limitFile && o.any || ok && (o.any && t.held || t.owner == o.owner)
}

// tell reports a new position.
func (r *request) tell(o *obstacle) {
	r.held = o.held
	if r.Waiting != nil && o.position != r.told {
		r.Waiting(driver.WaitInfo{Position: o.position, Held: o.held})
	}
	r.told = o.position
}
