package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// wait blocks until a queued request is granted or ctx ends. If it ends without a grant, it
// withdraws the request, even if a grant is on its way.
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
		held, trouble := w.waited.Last()
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
				return driver.Grant{}, w.waited.Ended(ctx, err)
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
			return driver.Grant{}, w.waited.Ended(ctx, nil)
		case <-acq.closed.Done():
			return driver.Grant{}, unavailable(errClosed)
		}
	}
}

// requeue puts a request back at its old place, after its grant expired before it was taken. If
// another grant has arrived meanwhile, that one is handled next.
func (q *waitQueue) requeue(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.queued = w.msg == nil
	if g := q.groups[w.req.Name]; g != nil {
		g.lost = true
		g.advance(0)
	}
}

// see records the state of the queue for the request's error.
func (w *waiter) see(ctx context.Context, s queueState) {
	if s.err != nil {
		w.waited.Unavailable(ctx, s.err)
	} else {
		w.noteBlocked(ctx, s.blocked)
	}
}

// take accepts a grant. The grant is younger than the request with which the message says that it
// began, and than this request's own: the lease counts from the later of the two. The holder's first
// renewal confirms it. take confirms it first if less than half of it is left, if its age is
// unknown, or if it must reach replicas or start a minimum hold. ok is false if it no longer exists.
func (acq *acquirer) take(ctx context.Context, w *waiter, n grantMsg) (g driver.Grant, ok bool, err error) {
	if n.err != nil {
		return g, false, n.err
	}
	g = driver.Grant{Owner: w.owner, Token: n.token, Floor: n.floor, Sent: n.sent, TTL: min(w.req.TTL, grantLife)}
	if g.Sent.Before(w.asked) && !g.Sent.IsZero() {
		g.Sent = w.asked
	}
	short := g.TTL < w.req.TTL
	if g.Sent.IsZero() || time.Since(g.Sent) > g.TTL/2 || w.req.MinHold > 0 || acq.cfg.MinReplicas > 0 {
		if ok, err = acq.confirm(ctx, w, &g); !ok {
			return driver.Grant{}, false, err
		}
		short = false
	}
	acq.hold(w, g, short)
	return g, true, nil
}

// confirm checks that a grant still exists and extends it to the full TTL, counted from the attempt
// that was answered. A lost call may be repeated: the second one finds the same grant.
func (acq *acquirer) confirm(ctx context.Context, w *waiter, g *driver.Grant) (bool, error) {
	token, life := strconv.FormatInt(g.Token, 10), redisfmt.Millis(w.req.TTL)
	call := renewCall(w.lock, w.owner, token, life)
	if w.req.Mode == driver.Shared || w.req.MinHold > 0 {
		call = acq.call(confirmScript, w.lock, w.owner, token, life, redisfmt.Millis(w.req.MinHold))
	}
	for pause := newBackoff(); ; pause.Wait(ctx) {
		sent := time.Now()
		r := acq.attempt(ctx, w, call)
		switch {
		case r.Err != nil && (!passing(r.Err) || ctx.Err() != nil || acq.closed.Err() != nil):
			return false, unavailable(r.Err)
		case r.Err != nil:
		case strings.HasPrefix(r.Text, "gone"):
			return false, nil
		default:
			g.Sent, g.TTL, g.Floor = sent, w.req.TTL, g.Token
			if floor, ok := strings.CutPrefix(r.Text, "ok "); ok {
				in := redisfmt.Words{Rest: floor}
				g.Floor = in.Int()
			}
			_, err := acq.replicated(ctx, w, *g, r.Replicas)
			return err == nil, err
		}
	}
}
