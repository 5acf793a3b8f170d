package redlock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/google/uuid"
)

// wait is a request that waits.
type wait struct {
	engine  *Engine
	queue   *localQueue
	req     driver.Request
	arrived time.Time
	how     attemptOptions

	heard    driver.Waited
	answered bool // by a majority, at least once
	informed bool // the caller knows that it waits
	slow     *retry.Backoff
	splits   int // collisions in a row
}

// run tries until the request, whose turn it is in this process, is granted or ctx
// ends.
func (w *wait) run(ctx context.Context) (driver.Grant, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return driver.Grant{}, unavailable(err)
	}
	w.how = attemptOptions{since: w.arrived, joins: true, caller: id.String(), asks: make(asks, len(w.engine.nodes))}
	w.slow = retry.NewBackoff(30*time.Millisecond, time.Second)
	g, err := w.acquireLoop(ctx)
	if err != nil {
		w.leave()
	}
	return g, err
}

func (w *wait) acquireLoop(ctx context.Context) (driver.Grant, error) {
	e, begun, news := w.engine, time.Now(), w.queue.subscribe(w.how.caller)
	defer w.queue.unsubscribe(w.how.caller)
	// The first attempt does not join the queues: it may meet a node that has yet to
	// hear of a release, and would wait there for what it has.
	how := w.how
	how.joins = false
	for {
		o := e.try(ctx, w.req, how)
		w.answered = w.answered || o.heard
		o.note(ctx, &w.heard)
		w.queue.note(ctx, &o)
		switch {
		case o.won:
			return o.grant, nil
		case ctx.Err() != nil:
			return driver.Grant{}, o.ended(ctx, &w.heard)
		case o.final, o.err != nil && !w.answered && !o.later && time.Since(begun) > e.cfg.RetryTimeout:
			return driver.Grant{}, o.err
		}
		if how.joins || o.err != nil {
			e.note(nameindex.Noted{Name: w.req.Name, Life: waitLife})
			w.inform(0)
			w.sleep(ctx, w.pause(o), news)
		}
		how = w.how
	}
}

// inform tells the caller, once, that the request waits, and what is known.
func (w *wait) inform(position int) {
	if w.req.OnWait == nil || w.informed && !w.req.Follow {
		return
	}
	w.informed = true
	held, trouble := w.heard.Last()
	w.req.OnWait(driver.WaitInfo{Position: position, Held: held, Trouble: trouble})
}

// pause is how long to wait for news before the next attempt. News comes in time
// unless a subscription is cut or the holder is no fencelock.
func (w *wait) pause(o outcome) time.Duration {
	if o.err == nil && o.split && (w.how.mine || !w.how.woken) {
		w.splits = min(w.splits+1, 5)
		return time.Millisecond + rand.N(4*time.Millisecond<<w.splits)
	}
	w.splits = 0
	d := w.slow.Next()
	if first := w.engine.leader(); first == nil || !first.ear.Load() || o.err != nil || o.inWay.PID == 0 {
		d = min(d, 100*time.Millisecond+rand.N(50*time.Millisecond))
	}
	if o.err == nil && o.next > 0 {
		d = min(d, o.next+time.Millisecond+rand.N(5*time.Millisecond))
	}
	return d
}

// sleep waits for d, or for news that it is this request's turn. News that it is
// another's turn puts the next attempt off: that one may be dead.
func (w *wait) sleep(ctx context.Context, d time.Duration, news <-chan string) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	w.how.woken, w.how.mine = false, false
	longest := time.Now().Add(250 * time.Millisecond)
	for {
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-w.engine.closed.Done():
			return
		case first := <-news:
			w.how.woken = true
			w.how.mine = first == w.how.caller || first == letter(w.req.Mode)
			w.slow.Reset()
			if first == everybody || first == w.how.caller || first == letter(w.req.Mode) {
				return
			}
			timer.Reset(min(30*time.Millisecond+rand.N(20*time.Millisecond), time.Until(longest)))
		}
	}
}

// leave takes a request that gave up out of the nodes' queues, and returns when a
// majority has done so, or has had the time.
func (w *wait) leave() {
	heard, limit := w.engine.depart(w.req.Name, w.req.TTL, w.how, w.engine.nodes), time.After(w.engine.cfg.limit(w.req.TTL))
	for range w.engine.need {
		select {
		case <-heard:
		case <-limit:
			return
		}
	}
}

// depart tells nodes that a request waits no more, in the background.
func (e *Engine) depart(name string, ttl time.Duration, how attemptOptions, nodes []*node) <-chan reply {
	answers := make(chan reply, len(nodes))
	if len(nodes) > 0 {
		e.broadcast(nodes, e.cfg.endLimit(ttl), answers, how.asks.after(asking(e.call(e.lua.leave, name, how.caller))))
	}
	return answers
}
