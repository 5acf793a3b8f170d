package redislock

import (
	"context"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// wait blocks until a queued request is granted or ctx ends. A wait that ends without a
// grant is withdrawn, also one whose grant is on its way.
func (acq *acquirer) wait(ctx context.Context, w *waiter, a answer) (driver.Grant, error) {
	if !acq.tasks.Enter() {
		acq.withdraw(w, withdrawPatience)
		return driver.Grant{}, unavailable(errClosed)
	}
	defer acq.tasks.Leave()
	acq.queue.join(w, a)
	granted := false
	defer func() { // also if OnWait panics
		if !granted {
			acq.withdraw(w, withdrawPatience)
		}
	}()
	w.see(ctx, queueState{blocked: a.blocked})
	if w.req.OnWait != nil {
		held, trouble := w.heard.Last()
		w.req.OnWait(driver.WaitInfo{Position: a.position, Held: held, Trouble: trouble})
	}
	for {
		n, s := acq.queue.read(w)
		if s != nil {
			w.see(ctx, *s)
		}
		if n != nil {
			g, ok, err := acq.take(ctx, w, *n)
			if err != nil {
				return driver.Grant{}, w.heard.Ended(ctx, err)
			}
			if ok {
				granted = true
				return g, nil
			}
			acq.queue.requeue(w)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return driver.Grant{}, w.heard.Ended(ctx, nil)
		case <-acq.closed.Done():
			return driver.Grant{}, unavailable(errClosed)
		}
	}
}

// requeue puts a request back whose grant ran out before it was taken, at its old place. If
// another grant has come meanwhile it is that one's turn.
func (q *waitQueue) requeue(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.queued = w.msg == nil
	if g := q.groups[w.req.Name]; g != nil {
		g.lost = true
		g.advance(0)
	}
}

// see notes what was heard of the server.
func (w *waiter) see(ctx context.Context, s queueState) {
	if s.err != nil {
		w.heard.Unavailable(ctx, s.err)
	} else {
		w.noteBlocked(ctx, s.blocked)
	}
}

// take accepts a grant. One that may have lain unread, or that has to reach
// replicas or begin a minimum hold, is confirmed first; ok is false if it turns
// out to be gone.
func (acq *acquirer) take(ctx context.Context, w *waiter, n grantMsg) (g driver.Grant, ok bool, err error) {
	if n.err != nil {
		return g, false, n.err
	}
	g = driver.Grant{Owner: w.owner, Token: n.token, Floor: n.floor, Sent: acq.queue.begun(w, n.at), TTL: n.life}
	if acq.cluster() { // the slot may have moved to a node with another clock
		g.Sent = w.asked
	}
	if g.Sent.IsZero() || time.Since(g.Sent) > n.life/2 || w.req.MinHold > 0 || acq.cfg.MinReplicas > 0 {
		if ok, err = acq.confirm(ctx, w, &g); !ok {
			return driver.Grant{}, false, err
		}
	}
	acq.hold(w, g.Token)
	return g, true, nil
}

// begun is a local time before a grant, if there is telling: by the last poll of
// the queue, or, if others have joined since the grant, by the request's own answer.
func (q *waitQueue) begun(w *waiter, at int64) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if g := q.groups[w.req.Name]; g != nil {
		if begin := g.sample.begin(at, w.asked); !begin.IsZero() {
			return begin
		}
	}
	return w.sample.begin(at, w.asked)
}

// confirm asks the server whether a grant stands, and makes it a full lease, which counts
// from the try that was answered. A call that was lost may be made again: the second one
// finds the same grant.
func (acq *acquirer) confirm(ctx context.Context, w *waiter, g *driver.Grant) (bool, error) {
	args := []string{w.owner, strconv.FormatInt(g.Token, 10), redisfmt.Millis(w.req.TTL), redisfmt.Millis(w.req.MinHold)}
	for pause := newBackoff(); ; pause.Wait(ctx) {
		sent := time.Now()
		r := acq.attempt(ctx, w, acq.call(confirmScript, w.lock, args...))
		switch {
		case r.Err != nil && (!passing(r.Err) || ctx.Err() != nil || acq.closed.Err() != nil):
			return false, unavailable(r.Err)
		case r.Err != nil:
		case r.Text != "ok":
			return false, nil
		default:
			g.Sent, g.TTL = sent, w.req.TTL
			_, err := acq.replicated(ctx, w, *g, r.Replicas)
			return err == nil, err
		}
	}
}
