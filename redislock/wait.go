package redislock

import (
	"context"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// wait blocks until a queued request is granted or ctx ends.
func (e *Engine) wait(ctx context.Context, w *waiter, a answer) (driver.Grant, error) {
	if !e.join(w, a) {
		e.withdraw(w, withdrawPatience)
		return driver.Grant{}, unavailable(errClosed)
	}
	defer e.tasks.Done()
	granted := false
	defer func() { // also if Waiting panics
		if !granted {
			e.withdraw(w, withdrawPatience)
		}
	}()
	var p progress
	p.see(ctx, w, seen{position: a.position, outlook: a.outlook})
	for {
		n, s := e.read(w)
		if s != nil {
			p.see(ctx, w, *s)
		}
		if n != nil {
			g, ok, err := e.take(ctx, w, *n)
			if err != nil {
				return driver.Grant{}, w.heard.Ended(ctx, err)
			}
			if ok {
				granted = true
				return g, nil
			}
			e.requeue(w)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return driver.Grant{}, w.heard.Ended(ctx, nil)
		case <-e.closed.Done():
			return driver.Grant{}, unavailable(errClosed)
		}
	}
}

// progress is what the caller of a waiting request was last told.
type progress struct {
	told     bool
	position int
}

// see notes what was heard of the server, and tells the caller: once, and if it
// follows whenever the place has changed.
func (p *progress) see(ctx context.Context, w *waiter, s seen) {
	if s.err != nil {
		w.heard.Unavailable(ctx, s.err)
	} else {
		w.listen(ctx, s.outlook)
	}
	if w.req.OnWait == nil || p.told && (!w.req.Follow || s.position == 0 || s.position == p.position) {
		return
	}
	p.told, p.position = true, s.position
	held, trouble := w.heard.Last()
	w.req.OnWait(driver.WaitInfo{Position: s.position, Held: held, Trouble: trouble})
}

// take accepts a grant. One that may have lain unread, or that has to reach
// replicas or begin a minimum hold, is confirmed first; ok is false if it turns
// out to be gone.
func (e *Engine) take(ctx context.Context, w *waiter, n news) (g driver.Grant, ok bool, err error) {
	if n.err != nil {
		return g, false, n.err
	}
	g = driver.Grant{Owner: w.owner, Token: n.token, Floor: n.floor, Sent: e.begun(w, n.at), TTL: n.life}
	if e.conn.Cluster() { // the slot may have moved to a node with another clock
		g.Sent = w.asked
	}
	if g.Sent.IsZero() || time.Since(g.Sent) > n.life/2 || w.req.MinHold > 0 || e.cfg.MinReplicas > 0 {
		if ok, err = e.confirm(ctx, w, &g); !ok {
			return driver.Grant{}, false, err
		}
	}
	e.hold(w, g.Token)
	return g, true, nil
}

// hold remembers a granted acquisition. A second seat, which a shared request has
// that took its place again when it had been let in, is given back.
func (e *Engine) hold(w *waiter, token int64) {
	e.remark()
	if other := e.keep(w, token); other != 0 {
		e.giveBack(e.releaseCall(w.keys, w.req.Mode, w.owner, other))
	}
}

// confirm asks the server whether a grant stands, and makes it a full lease.
func (e *Engine) confirm(ctx context.Context, w *waiter, g *driver.Grant) (bool, error) {
	args := []string{w.owner, strconv.FormatInt(g.Token, 10), letter(w.req.Mode), millis(w.req.TTL), millis(w.req.MinHold)}
	for pause := newBackoff(); ; pause.Wait(ctx) {
		sent := time.Now()
		r := e.attempt(ctx, w, e.call(confirmScript, w.keys, args...))
		switch {
		case r.Err != nil && (!passing(r.Err) || ctx.Err() != nil || e.closed.Err() != nil):
			return false, unavailable(r.Err)
		case r.Err != nil:
		case r.Text != "ok":
			return false, nil
		default:
			g.Sent, g.TTL = sent, w.req.TTL
			_, err := e.replicated(ctx, w, *g, r.Replicas)
			return err == nil, err
		}
	}
}

// giveBack releases a grant whose request was cancelled, without blocking.
func (e *Engine) giveBack(release Call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spawn(func() { // ends when the server has answered, or with its attempt limit
		_, _ = e.eval(withDeadline(context.Background(), attemptLimit(0)), release)
	})
}

// letter is the mode as the scripts know it.
func letter(m driver.Mode) string {
	if m == driver.Shared {
		return "s"
	}
	return "x"
}

// modeOf is the mode that a letter stands for.
func modeOf(letter string) driver.Mode {
	if letter == "s" {
		return driver.Shared
	}
	return driver.Exclusive
}
