package recordlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/identity"
	"github.com/fencelock/fencelock/internal/limits"
	"github.com/fencelock/fencelock/internal/retry"
)

// acquiring is one request for a lock. The mutex of its worker guards its results.
type acquiring struct {
	*job
	worker *worker
	req    driver.Request
	from   *driver.Lease // the acquisition that it adopts; nil if none
	me     claim         // with a ticket if it has a place among the waiters, or had one
	grant  driver.Grant
	found  driver.WaitInfo      // what it has found in the last state
	queued chan driver.WaitInfo // has that once the request waits
}

func (w *worker) newAcquiring(req driver.Request) *acquiring {
	a := &acquiring{worker: w, req: req, queued: make(chan driver.WaitInfo, 1)}
	a.me = claim{
		Owner: uuid.Must(uuid.NewV7()).String(), Client: w.id,
		Shared: req.Mode == driver.Shared, Limit: req.Limit, Weight: max(req.Weight, min(req.Limit, 1)), // 1, or 0 without a limit
		JSON: identity.JSONOf(req.Identity, cut),
	}
	a.job = &job{apply: a.enter, acquires: a}
	return a
}

// enter takes the name if it is free, and joins the waiters otherwise.
func (a *acquiring) enter(st *state, m moment) (answer, error) {
	if m.clockUnknown() {
		return awaitsClock, nil
	}
	closed := st.Closed != nil && st.Closed.Owner == a.me.Owner && len(st.Holders) == 0
	if closed || st.holder(a.me.Owner) != nil { // by an attempt whose answer was lost
		// It may have been executed late, after others with greater tokens. Its lease may be over.
		return a.addHolder(st, m)
	}
	if a.from != nil {
		return a.adopt(st, m)
	}
	if err := st.checkLimit(a.me); err != nil {
		return refused, err
	}
	place := find(st.Waiters, a.me.Owner)
	if free := place >= 0 || len(st.Waiters) == 0; free && st.fits(a.me, max(place, 0)) {
		if place < 0 && !st.grow(a.me) {
			return refused, fmt.Errorf("%w: the record of %q has no room for another holder", driver.ErrInvalid, st.Name)
		}
		return a.addHolder(st, m)
	}
	held := a.worker.inWay(st, m)
	if !a.req.Wait {
		return refused, held
	}
	result := waits
	if place < 0 && (len(st.Waiters) < maxWaiters || a.me.Ticket > 0) && st.grow(a.me) {
		place, result = a.join(st, m), joins
	}
	a.found = driver.WaitInfo{Position: place + 1, Held: held}
	return result, nil
}

// adopt replaces another acquisition. The minimum hold of that one continues.
func (a *acquiring) adopt(st *state, m moment) (answer, error) {
	h := st.holder(a.from.Owner)
	switch {
	case h == nil || h.Token != a.from.Token:
		return refused, notHeld(st.Name)
	case h.Shared != a.me.Shared || h.Limit != a.me.Limit || h.Weight != a.me.Weight:
		return refused, limits.Unlike(st.Name, h.Limit, h.units())
	}
	st.remove(a.from.Owner)
	return a.addHolder(st, m)
}

// addHolder makes the request a holder, and starts its minimum hold. The grant counts once the
// state is stored.
func (a *acquiring) addHolder(st *state, m moment) (answer, error) {
	st.remove(a.me.Owner)
	h := a.me
	h.Token, h.Since = st.issue(m), m.wall.UnixMicro()
	h.Ticket, h.Client = 0, ""
	h.start(a.req.TTL, h.Token, m)
	if a.req.MinHold > 0 {
		st.Closed = &closing{Owner: h.Owner}
		st.Closed.start(a.req.MinHold, h.Token, m)
	}
	st.Holders = append(st.Holders, h)
	a.grant = driver.Grant{Owner: h.Owner, Token: h.Token, Floor: st.Holders[0].Token, Sent: m.now, TTL: a.req.TTL}
	return stored, nil
}

// join gives the request a place among the waiters. One whose process was taken for dead returns
// to its old place.
func (a *acquiring) join(st *state, m moment) (place int) {
	w := a.me
	if w.Ticket == 0 {
		w.Since, w.Ticket = m.wall.UnixMicro(), m.wall.UnixMicro()
		if n := len(st.Waiters); n > 0 {
			w.Ticket = max(w.Ticket, st.Waiters[n-1].Ticket+1)
		}
	}
	place, _ = slices.BinarySearchFunc(st.Waiters, w, func(a, b claim) int { return cmp.Compare(a.Ticket, b.Ticket) })
	st.Waiters = slices.Insert(st.Waiters, place, w)
	return place
}

// queue tells the caller that its request waits in a state that the store has. The caller holds the
// mutex of the worker.
func (a *acquiring) queue(st *state) {
	a.waited.Held(a.found.Held)
	if place := find(st.Waiters, a.me.Owner); place >= 0 {
		a.me = st.Waiters[place]
	}
	select {
	case a.queued <- a.found:
	default:
	}
}

// inWay returns what keeps a request from being granted.
func (w *worker) inWay(st *state, m moment) *driver.HeldError {
	held := &driver.HeldError{Name: st.Name}
	var until time.Duration
	switch {
	case len(st.Holders) > 0:
		h := st.Holders[0]
		until = w.seen.left(h.Owner, h.lease, m)
		held.Owner, held.Identity, held.Since = h.Owner, h.Identity(), h.since()
	case st.Closed != nil:
		held.Owner = "nobody"
	case len(st.Waiters) > 0:
		held.Owner, held.Identity = st.Waiters[0].Owner, st.Waiters[0].Identity()
	}
	if st.Closed != nil {
		until = max(until, w.seen.left(minimum, st.Closed.lease, m))
	}
	if until > 0 {
		held.Until = m.wall.Add(until)
	}
	return held
}

// leaveLimit is how long a caller whose context has ended waits until its request has left the
// record.
const leaveLimit = time.Second

// tryLimit is how long a request that does not wait is retried while the store is unreachable.
const tryLimit = 5 * time.Second

// Acquire makes one acquisition; see [driver.Engine].
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := req.Check(e.Traits()); err != nil {
		return driver.Grant{}, err
	}
	return e.acquire(ctx, req, nil)
}

// Adopt makes an acquisition in place of another one; see [driver.Adopter].
func (e *Engine) Adopt(ctx context.Context, lease driver.Lease, req driver.Request) (driver.Grant, error) {
	if err := req.CheckAdopt(e.Traits(), lease); err != nil {
		return driver.Grant{}, err
	}
	req.Wait = false
	return e.acquire(ctx, req, &lease)
}

func (e *Engine) acquire(ctx context.Context, req driver.Request, from *driver.Lease) (g driver.Grant, err error) {
	if err := ctx.Err(); err != nil {
		return g, err
	}
	if !req.Wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tryLimit)
		defer cancel()
	}
	a := e.worker(req.Name).newAcquiring(req)
	a.from = from
	a.worker.submit(a.job)
	defer func() {
		if g.Token == 0 { // also if OnWait panics
			a.leave(time.Now())
		}
	}()
	for queued := a.queued; ; {
		select {
		case <-a.done:
			return a.result(ctx)
		case found := <-queued:
			queued = nil // it may be filled again
			if req.OnWait != nil {
				req.OnWait(found)
			}
		case <-ctx.Done():
			retry.Nap(context.WithoutCancel(ctx), leaveLimit, a.leave(time.Now()))
			return a.result(ctx)
		}
	}
}

// leave makes the request leave the record, since its caller does not get the lock. The channel is
// closed when it has left.
func (a *acquiring) leave(now time.Time) (left <-chan struct{}) {
	w := a.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.ended && a.err != nil {
		return a.done
	}
	return w.withdraw(a, errGone, now)
}

// withdraw ends a request that is not granted with an error. If the store may have something of it, or may
// still execute an attempt of unknown outcome, the record is written once more without it. The channel is
// closed when nothing of it is left. The caller holds mu.
func (w *worker) withdraw(a *acquiring, err error, now time.Time) (left <-chan struct{}) {
	delete(w.holds, a.me.Owner)
	w.collected(a)
	if a.err = err; !a.ended {
		w.finish(a.job, err)
	}
	if !a.writes() && !a.unsure && a.me.Ticket == 0 { // the store knows nothing of it
		return a.done
	}
	undo := &job{until: now.Add(max(a.req.TTL, a.req.MinHold, callLimit))}
	undo.apply = func(st *state, _ moment) (answer, error) {
		st.undo(a.me.Owner)
		return stored, nil
	}
	w.add(undo)
	return undo.done
}

// errGone is the result of a request whose caller has gone.
var errGone = fmt.Errorf("%w: gave up", driver.ErrUnavailable)

// result returns the grant or the error of a request, which may have left.
func (a *acquiring) result(ctx context.Context) (driver.Grant, error) {
	a.worker.mu.Lock()
	defer a.worker.mu.Unlock()
	if a.err == nil && a.worker.engine.tasks.Refuses() { // nothing would renew it
		a.worker.withdraw(a, errClosed, time.Now())
	}
	a.worker.collected(a)
	switch {
	case errors.Is(a.err, errGone):
		return driver.Grant{}, a.waited.Ended(ctx, nil)
	case a.err != nil:
		return driver.Grant{}, a.waited.Ended(ctx, a.err)
	}
	return a.grant, nil
}
