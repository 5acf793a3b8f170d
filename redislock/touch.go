package redislock

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/words"
)

const (
	rejoinSize = 200 // requests put back by one script
	askedSize  = 16  // requests whose places are asked for
)

// attend looks at the lock whenever something may have changed, and so tells the
// server that this client lives. A server that refuses to be asked for RetryTimeout ends
// the waits.
func (e *Engine) attend(g *group) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := newBackoff()
	var refused time.Time // since when; zero if it does not
	for {
		left, ok := e.remaining(g)
		if !ok {
			return
		}
		if left > 0 {
			timer.Reset(left)
			select {
			case <-timer.C:
			case <-g.poke:
			case <-e.closed.Done():
				return
			}
			continue
		}
		err := e.touch(g)
		if err != nil {
			e.trouble(g, err)
		}
		switch {
		case err == nil:
			failed.Reset()
			refused = time.Time{}
			continue
		case passing(err):
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) > e.cfg.RetryTimeout:
			e.refuse(g, err)
		}
		e.mu.Lock()
		g.due = time.Now().Add(failed.Next())
		e.mu.Unlock()
	}
}

// trouble tells the waiters of a group that the server could not be asked.
func (e *Engine) trouble(g *group, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g.trouble(err)
}

// troubles tells all waiters that nothing is heard of the server.
func (e *Engine) troubles(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, g := range e.groups {
		g.trouble(err)
	}
}

// trouble is for a caller that holds Engine.mu.
func (g *group) trouble(err error) {
	for _, w := range g.waiters {
		if w.queued {
			w.seen, w.trouble = &seen{err: unavailable(err)}, true
			w.notify()
		}
	}
}

// refuse ends the waits of a group.
func (e *Engine) refuse(g *group, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range g.waiters {
		if w.queued {
			w.tell(news{err: unavailable(err)})
		}
	}
}

// remaining is how long until the next look; ok is false when nobody waits.
func (e *Engine) remaining(g *group) (left time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(g.waiters) == 0 || e.closed.Err() != nil {
		delete(e.groups, g.name)
		return 0, false
	}
	return time.Until(g.due), true
}

// touch asks the server once, or several times to put many requests back.
func (e *Engine) touch(g *group) error {
	queued, longest, again := e.roll(g)
	if len(queued) == 0 {
		return nil
	}
	asked := toAsk(queued)
	args := []string{e.id, millis(longest), "", strconv.Itoa(len(asked))}
	for _, w := range asked {
		args = append(args, w.entry())
	}
	if !again {
		return e.look(g, asked, args)
	}
	for part := range slices.Chunk(queued, rejoinSize) {
		pairs := slices.Clone(args)
		for _, w := range part {
			pairs = append(pairs, w.ticket, w.entry())
		}
		if err := e.look(g, asked, pairs); err != nil {
			e.mu.Lock()
			g.lost = true
			e.mu.Unlock()
			return err
		}
	}
	return nil
}

// roll calls the roll of the queued requests, the oldest first.
func (e *Engine) roll(g *group) (queued []*waiter, longest time.Duration, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range g.waiters {
		if w.queued {
			queued = append(queued, w)
			longest = max(longest, w.req.TTL)
		}
	}
	if len(queued) == 0 { // all are being granted
		g.due = time.Now().Add(maxTouch)
		return nil, 0, false
	}
	slices.SortFunc(queued, compareTickets)
	again, g.lost = g.lost, false
	return queued, longest, again
}

// toAsk returns the oldest request, and the next few that tell their callers.
func toAsk(queued []*waiter) []*waiter {
	asked := queued[:1:1]
	for _, w := range queued[1:] {
		if len(asked) == askedSize {
			break
		}
		if w.req.OnWait != nil && w.req.Follow {
			asked = append(asked, w)
		}
	}
	return asked
}

// look runs the touch script and acts on what it says.
func (e *Engine) look(g *group, asked []*waiter, args []string) error {
	limit := attemptLimit(asked[0].req.TTL)
	args[2], _ = e.until(e.closed, limit)
	sent := time.Now()
	text, err := e.eval(withDeadline(e.closed, limit), e.call(touchScript, g.keys, args...))
	if err != nil {
		return err
	}
	if now, ok := strings.CutPrefix(text, "late "); ok {
		e.clock.note(sample{sent: sent, server: number(now)}, true)
		return errLate
	}
	in := words.Words{Rest: text}
	now, known := in.Int(), in.Int() == 1
	places := strings.Split(in.Next(), ",")
	o := readOutlook(&in)
	if in.Bad || len(places) != len(asked) {
		return malformed(text)
	}
	all := make([]seen, len(asked))
	for i := range all {
		all[i] = seen{position: int(number(places[i])), outlook: o}
	}
	s := sample{sent: sent, server: now}
	e.clock.note(s, false)
	if h, ours := e.settle(g, s, all[0]); ours {
		e.deliver(h.Owner, news{token: h.Token, floor: h.Token})
	}
	e.report(g, asked, all, known)
	return nil
}

// settle notes what was seen, and finds out whether the holder is a request of
// ours that has not heard of its grant.
func (e *Engine) settle(g *group, now sample, first seen) (h driver.Holder, ours bool) {
	text, granted := strings.CutPrefix(first.outlook.text, "fencelock ")
	if granted {
		h, granted = parseHolder(text)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g.sample = now
	g.heard()
	e.note(nameindex.Noted{Name: g.name, Life: waitLife})
	g.due = time.Now().Add(pause(first, g.shortest()))
	w := e.waiters[h.Owner]
	return h, granted && w != nil && w.queued
}

// report tells the requests that were asked for their places, and those that heard
// of trouble that it is over, and takes all back
// to the queue if the server has forgotten the oldest.
func (e *Engine) report(g *group, asked []*waiter, all []seen, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, w := range asked {
		if w.queued {
			w.seen, w.trouble = &all[i], false
			w.notify()
		}
	}
	for _, w := range g.waiters {
		if w.queued && w.trouble {
			w.seen, w.trouble = &seen{outlook: all[0].outlook}, false
			w.notify()
		}
	}
	if !known && asked[0].queued {
		g.lost = true
		g.advance(0)
	}
}
