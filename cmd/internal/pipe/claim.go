//go:build unix

package pipe

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
)

const (
	minMove    = 20 * time.Millisecond // a deadline that has moved by less is not reported again
	minReserve = 50 * time.Millisecond // how long a lock is kept after the deadline that the program knows, at least
)

// claim is a lock that the program wants or has. Its goroutine runs from the request until the
// answer to the request to release it.
type claim struct {
	id      int64
	cancel  context.CancelFunc
	freed   chan struct{}   // closed when the program does not want the lock any more
	dropped bool            // freed is closed
	lost    bool            // the program knows of the loss
	lock    *fencelock.Lock // nil until the program knows of the grant
	known   time.Time       // the latest deadline that the program may believe in; zero without a lease
	maxEnd  time.Time       // the end of the maximum hold; zero without one
}

// start begins an acquisition.
func (s *server) start(ctx context.Context, q request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
	case q.ID <= 0:
		s.put(response{Err: &failure{Class: classInvalid, Text: "the id of a lock must be greater than 0"}})
	case s.claims[q.ID] != nil:
		s.put(response{Err: &failure{Class: classInvalid, Text: fmt.Sprintf("the id %d is in use", q.ID)}})
	default:
		ctx, cancel := context.WithCancel(fencelock.WithTrace(ctx, q.Trace))
		c := &claim{id: q.ID, cancel: cancel, freed: make(chan struct{})}
		s.claims[q.ID] = c
		s.busy.Go(func() { // ends with the claim
			defer cancel()
			if err := s.live(ctx, c, q); err != nil {
				s.failed(c, err)
			}
		})
	}
}

// live acquires the lock of a claim and holds it until the program releases it. It returns an error
// if there was no lock.
func (s *server) live(ctx context.Context, c *claim, q request) error {
	locks := s.locks.With(s.options(c.id, q))
	if q.Op == "elect" {
		for term, err := range election.New(locks, q.Name, &election.Config{Rank: q.Rank}).Terms(ctx) {
			if err != nil {
				return err
			}
			return s.hold(c, q, term.Lock(), term.Context())
		}
	}
	acquire := locks.Acquire
	if q.WaitMS != nil && *q.WaitMS <= 0 {
		acquire = locks.TryAcquire
	}
	lock, err := acquire(ctx, q.Name)
	if err != nil {
		return err
	}
	return s.hold(c, q, lock, lock.Context())
}

// options returns the options of a request.
func (s *server) options(id int64, q request) fencelock.Options {
	o := fencelock.Options{
		TTL: millis(q.TTLMS), Shared: q.Shared, Limit: q.Limit, Weight: q.Weight,
		MinHold: millis(q.MinHoldMS), MaxHold: millis(q.MaxHoldMS), Note: q.Note, Kind: q.Kind,
	}
	if q.WaitMS != nil {
		o.Wait = max(0, millis(*q.WaitMS))
	}
	o.OnWait = func(i driver.WaitInfo) {
		w := &wait{Position: i.Position, Held: holderOf(i.Held)}
		if i.Trouble != nil {
			w.Trouble = s.Redact(i.Trouble.Error())
		}
		s.put(response{ID: id, Wait: w})
	}
	return o
}

// millis converts milliseconds. A number of more than thirty years is as long as those, which the
// library refuses.
func millis(n int64) time.Duration { return time.Duration(max(-1, min(n, 1e12))) * time.Millisecond }

// hold tells the program that it has a lock, and when it has lost it. It returns when the program
// has asked for the release, after the answer. over ends with the hold.
func (s *server) hold(c *claim, q request, lock *fencelock.Lock, over context.Context) error {
	if err := s.Guard.Keep(c.id, lock); err != nil {
		_ = lock.Release()
		return err
	}
	s.mu.Lock()
	if !c.dropped {
		c.lock = lock
		if q.MaxHoldMS > 0 {
			c.maxEnd = time.Now().Add(millis(q.MaxHoldMS))
		}
		g := &grant{Token: lock.Token(), Text: strconv.FormatInt(lock.Token(), 10), Floor: lock.Floor(), Owner: lock.Owner()}
		g.remaining, _ = c.report(time.Now(), 0)
		s.put(response{ID: c.id, At: s.at, Got: g})
	}
	s.mu.Unlock()
	select {
	case <-c.freed:
	case <-over.Done():
		s.lost(c, context.Cause(over))
		<-c.freed // on files, the lock is kept until the program has stopped its work
	}
	s.Guard.Free(c.id) // first: a release only closes descriptors that another process has too
	err := lock.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := response{ID: c.id, Ended: "released"}
	switch {
	case c.lock == nil:
		t.Ended = "cancelled"
	case c.lost:
		t.Ended = "lost"
	case errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrLost):
		t.Ended, t.Err = "lost", failureOf(err, s.Redact)
	case err != nil:
		t.Err = failureOf(err, s.Redact)
	}
	delete(s.claims, c.id)
	s.put(t)
	return nil
}

// report returns how long the program may believe that it holds a lock, from now on. It returns false
// if the lock is not held, and if the deadline has moved by less than least since the last answer to the program.
// From then on, the lock is released only after that time, unless the program asks for it. The
// caller holds mu of the server, and has read now before: a pause makes the result shorter.
func (c *claim) report(now time.Time, least time.Duration) (l remaining, ok bool) {
	if c.lock == nil || c.dropped || c.lock.Err() != nil {
		return l, false
	}
	end := c.lock.Deadline()
	if least > 0 && end.Sub(c.known) < least {
		return l, false
	}
	stop := end
	if !c.maxEnd.IsZero() {
		l.MaxMS = new(c.maxEnd.Sub(now).Milliseconds())
		if end.IsZero() || c.maxEnd.Before(end) {
			stop = c.maxEnd
		}
	}
	until := stop.Sub(now)
	switch {
	case stop.IsZero():
		return l, true
	case until <= 0:
		return l, false
	case end.IsZero():
		return l, true
	}
	l.LeftMS = new(end.Sub(now).Milliseconds())
	// If the program is silent, the library ends the lock then. The rest is for a program that
	// learns of the deadline from its own clock.
	c.known = end
	return l, c.lock.SetMaxHold(until+max(minReserve, until/20)) == nil
}

// lost tells the program that a lock has ended, unless it has asked for that.
func (s *server) lost(c *claim, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.dropped {
		return
	}
	f := failureOf(cause, s.Redact)
	switch {
	case f.Class != "max_hold":
	case c.maxEnd.IsZero() || !c.known.IsZero() && c.known.Before(c.maxEnd):
		f.Class, f.Text = "lost", "the program was silent until the deadline of the lock"
	default:
		f.Text = "the maximum hold is over"
	}
	c.lost = true
	s.put(response{ID: c.id, Lost: f})
}

// failed tells the program that it does not get a lock.
func (s *server) failed(c *claim, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, c.id)
	t := response{ID: c.id, Err: failureOf(err, s.Redact)}
	if c.dropped {
		t = response{ID: c.id, Ended: "cancelled"}
	}
	s.put(t)
}

// release lets a claim end, whether it waits or has a lock. Its goroutine answers.
func (s *server) release(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[id]
	if c == nil {
		s.put(response{ID: id, Ended: "unknown"})
		return
	}
	c.drop()
}

// drop lets the goroutine of a claim end. The caller holds mu of the server.
func (c *claim) drop() {
	if !c.dropped {
		c.dropped = true
		close(c.freed)
		c.cancel()
	}
}
