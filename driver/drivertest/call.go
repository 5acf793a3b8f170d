package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// held is an acquisition that the case considers held.
type held struct {
	driver.Grant
	t      *run
	client Client
	req    driver.Request
	sent   time.Time // before the request or the last successful renewal was sent
}

// lease returns the lease of the acquisition.
func (h *held) lease() driver.Lease {
	return driver.Lease{Name: h.req.Name, Owner: h.Owner, Token: h.Token, Mode: h.req.Mode, TTL: h.req.TTL}
}

// renew renews the lease and returns the engine's error.
func (h *held) renew() error {
	h.t.Helper()
	sent := time.Now()
	errs := within(h.t, "Renew", func(ctx context.Context) []error {
		return h.client.Renew(ctx, []driver.Lease{h.lease()})
	})
	if len(errs) != 1 {
		h.t.Fatalf("Renew of 1 lease gave %d answers", len(errs))
	}
	if errs[0] == nil {
		h.sent, h.TTL = sent, h.req.TTL
	}
	return errs[0]
}

// release releases the lock and returns the engine's error.
func (h *held) release() error {
	h.t.Helper()
	return h.t.release(h.client, h.lease())
}

// release releases a lease through c, which need not be its client.
func (t *run) release(c Client, l driver.Lease) error {
	t.Helper()
	return within(t, "Release", func(ctx context.Context) error { return c.Release(ctx, l) })
}

// stands fails the case unless the acquisition can be renewed.
func (h *held) stands(when string) {
	h.t.Helper()
	if err := h.renew(); err != nil && !h.lapsed(err) {
		h.t.Fatalf("renewing the holder of %q %s: %v", h.req.Name, when, err)
	}
}

// free releases the lock and fails the case on an error.
func (h *held) free() {
	h.t.Helper()
	if err := h.release(); err != nil && !h.lapsed(err) {
		h.t.Fatalf("releasing %q: %v", h.req.Name, err)
	}
}

// lapsed reports whether err only means that the lease expired because the machine was too slow.
func (h *held) lapsed(err error) bool {
	late := h.t.traits.Leased && !h.t.bubble && !time.Now().Before(h.sent.Add(min(h.TTL, h.req.TTL)))
	if late = late && errors.Is(err, driver.ErrNotHeld); late {
		h.t.Logf("a lease of %q was used too late to check: %v", h.req.Name, err)
	}
	return late
}

// confirmed renews a grant whose lease is shorter than requested, as a Locker does, and reports
// whether it is still held: the machine may be too slow. Any goroutine may call it.
func (h *held) confirmed(ctx context.Context) bool {
	t := h.t
	if !t.traits.Leased || h.TTL >= h.req.TTL {
		return true
	}
	err := h.client.Renew(ctx, []driver.Lease{h.lease()})[0]
	if errors.Is(err, driver.ErrNotHeld) {
		t.Logf("a grant of %q for %v was too late: %v", h.req.Name, h.TTL, err)
		return false
	}
	if err != nil {
		t.Errorf("renewing %q, which was granted for %v: %v", h.req.Name, h.TTL, err)
	}
	return true
}

// attempt makes one request and returns the engine's answer.
func (t *run) attempt(c Client, req driver.Request) (*held, error) {
	t.Helper()
	type answer struct {
		held *held
		err  error
	}
	a := within(t, "Acquire", func(ctx context.Context) answer {
		h, err := t.ask(ctx, c, req)
		return answer{h, err}
	})
	return a.held, a.err
}

// ask makes a request and checks the grant. Any goroutine may call it.
func (t *run) ask(ctx context.Context, c Client, req driver.Request) (*held, error) {
	h := &held{t: t, client: c, req: req, sent: time.Now()}
	g, err := c.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	h.examine(g)
	return h, nil
}

// examine checks a grant. Any goroutine may call it.
func (h *held) examine(g driver.Grant) {
	t, req := h.t, h.req
	h.Grant = g
	t.known.Lock()
	again := t.owners[g.Owner]
	t.owners[g.Owner] = true
	t.known.Unlock()
	switch {
	case g.Owner == "" || again:
		t.Errorf("acquiring %q: the owner %q is not new", req.Name, g.Owner)
	case g.Token <= 0 || g.Floor <= 0 || g.Floor > g.Token:
		t.Errorf("acquiring %q: want 0 < floor %d <= token %d", req.Name, g.Floor, g.Token)
	case !g.Sent.IsZero() && (g.Sent.Before(h.sent) || g.Sent.After(time.Now())):
		t.Errorf("acquiring %q: the grant says sent at %v, asked at %v", req.Name, g.Sent, h.sent)
	}
}

// hold acquires a free name and fails the case on an error.
func (t *run) hold(c Client, req driver.Request) *held {
	t.Helper()
	h, err := t.attempt(c, req)
	if err != nil {
		t.Fatalf("acquiring the free name %q: %v", req.Name, err)
	}
	return h
}

// take acquires a name that must become free within d.
func (t *run) take(d time.Duration, c Client, req driver.Request) (h *held) {
	t.Helper()
	t.eventually(d, "the name is free", func() bool {
		var err error
		h, err = t.attempt(c, req)
		return err == nil
	})
	return h
}

// refused fails the case unless a non-blocking request returns a *HeldError.
func (t *run) refused(c Client, req driver.Request, when string) *driver.HeldError {
	t.Helper()
	h, err := t.attempt(c, req)
	return t.denied(h, err, req, when)
}

// refusedUntil is refused for a name that may be free after end. If the machine was too slow,
// nothing is checked.
func (t *run) refusedUntil(end time.Time, c Client, req driver.Request, when string) {
	t.Helper()
	h, err := t.attempt(c, req)
	if err == nil && !time.Now().Before(end) {
		t.Logf("a non-blocking request for %q %s was too late to check", req.Name, when)
		h.free()
		return
	}
	t.denied(h, err, req, when)
}

// denied fails the case unless a request returned a *HeldError.
func (t *run) denied(h *held, err error, req driver.Request, when string) *driver.HeldError {
	t.Helper()
	if err == nil {
		t.Fatalf("a non-blocking request for %q %s was granted, with token %d", req.Name, when, h.Token)
	}
	var facts *driver.HeldError
	if !errors.Is(err, driver.ErrHeld) || !errors.As(err, &facts) {
		t.Fatalf("a non-blocking request for %q %s: got %v, want a *HeldError", req.Name, when, err)
	}
	return facts
}

// call is a waiting request in a goroutine of its own.
type call struct {
	t      *run
	name   string
	cancel context.CancelFunc // cancels the wait
	done   chan struct{}      // closed when the engine has answered
	held   *held              // the result; valid after done, like the fields below
	err    error
	at     time.Time // when the request returned
}

// wait starts a waiting request.
func (t *run) wait(c Client, req driver.Request) *call {
	ctx, cancel := context.WithCancel(t.ctx)
	w := &call{t: t, name: req.Name, cancel: cancel, done: make(chan struct{})}
	req.Wait = true
	t.calls.Go(func() { // ends when the engine answers, at the latest after the case
		w.held, w.err = t.ask(ctx, c, req)
		w.at = time.Now()
		cancel()
		close(w.done)
	})
	return w
}

const untold = "Request.OnWait was not called within %v of joining the queue of a held name"

// queue starts a waiting request and returns when it has joined the queue.
func (t *run) queue(c Client, req driver.Request) *call {
	t.Helper()
	t.unlessOmitted(untold)
	joined := joins(&req)
	w := t.wait(c, req)
	select {
	case <-joined:
	case <-w.done:
		t.Fatalf("a waiter for the held name %q did not wait: %v", req.Name, w.err)
	case <-time.After(t.patience):
		t.omits(untold, t.patience)
	}
	return w
}

// joins returns a channel that is closed when the request joins the queue.
func joins(req *driver.Request) <-chan struct{} {
	joined := make(chan struct{})
	var once sync.Once
	onWait := req.OnWait
	req.OnWait = func(info driver.WaitInfo) {
		if onWait != nil {
			onWait(info)
		}
		once.Do(func() { close(joined) })
	}
	return joined
}

// queueBehind is queue for a name whose holder has a short lease, which is renewed until the waiter
// has joined. If the machine is too slow, ok is false and nothing is checked.
func (t *run) queueBehind(h *held, c Client, req driver.Request) (w *call, ok bool) {
	t.Helper()
	t.unlessOmitted(untold)
	joined := joins(&req)
	w = t.wait(c, req)
	for end := time.Now().Add(t.patience); ; {
		select {
		case <-joined:
			return w, true
		case <-w.done:
			if w.err != nil || !h.lapsed(driver.ErrNotHeld) {
				t.Fatalf("a waiter for the held name %q did not wait: %v", req.Name, w.err)
			}
			return w, false
		case <-time.After(t.ttl / 10):
			if time.Now().After(end) {
				t.omits(untold, t.patience)
			}
			h.stands("before a waiter has joined")
		}
	}
}

// finished fails the case unless the request returns within d.
func (w *call) finished(d time.Duration, what string) {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(d):
		w.t.Fatalf("%s for %q: no answer within %v", what, w.name, d)
	}
}

// granted fails the case unless the waiter is granted within d. A grant with a shorter lease than
// requested is renewed, as a Locker does.
func (w *call) granted(d time.Duration, what string) *held {
	w.t.Helper()
	w.finished(d, what)
	if w.err != nil {
		w.t.Fatalf("%s for %q: %v", what, w.name, w.err)
	}
	if w.t.traits.Leased && w.held.TTL < w.held.req.TTL {
		w.held.stands("that was granted for " + w.held.TTL.String())
	}
	return w.held
}

// answered reports whether the request has returned.
func (w *call) answered() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// pending fails the case if the request has returned.
func (w *call) pending(when string) {
	w.t.Helper()
	w.t.settle()
	if w.answered() {
		w.t.Fatalf("a waiter for %q did not wait %s: %v", w.name, when, w.err)
	}
}

// outOfTime waits for a held name with a deadline. If the deadline passes before the engine has
// reported that the name is held, it retries with a later one.
func (t *run) outOfTime(c Client, req driver.Request, what string) {
	t.Helper()
	req.Wait = true
	joined := joins(&req)
	for limit := t.tick(); ; limit *= 2 {
		err := within(t, "Acquire", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			_, err := t.ask(ctx, c, req)
			return err
		})
		select {
		case <-joined:
		default:
			if !errors.Is(err, driver.ErrHeld) && limit < t.patience/2 {
				continue // the engine knew nothing of the name yet, or had not begun
			}
		}
		if !errors.Is(err, driver.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want ErrHeld and DeadlineExceeded", what, err)
		}
		return
	}
}
