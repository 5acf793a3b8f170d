package recordlock_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/recordlock"
)

// A request to read takes four seconds until it arrives, and the holder renews in the meantime. The
// lease must count from the answer: counted from the question, it would be over before its holder
// stops to rely on it.
func TestLeaseCountsFromTheAnswer(t *testing.T) {
	verdict.Is(t, "Records: the holder is partitioned from the store", verdict.Safe)
	play(t, false, func(s scene) {
		holder, _ := s.client()
		g := s.acquire(holder, request())
		other, l := s.client()
		l.set(func(l *link) { l.before = 4 * time.Second })
		granted := make(chan time.Time)
		go func() {
			s.acquire(other, waiting())
			granted <- time.Now()
		}()
		time.Sleep(4*time.Second - time.Millisecond)
		l.set(func(l *link) { l.before = 0 }) // of the requests after the first
		renewed := time.Now()
		s.ok(holder.Renew(s.Context(), []driver.Lease{lease(g)})[0])
		if early := renewed.Add(ttl).Sub(<-granted); early > 0 {
			t.Errorf("the waiter was granted %v before the end of the lease", early)
		}
	})
}

// try asks once, as a process without a past.
func (s scene) try(change func(*link)) error {
	e, l := s.client()
	l.set(change)
	_, err := e.Acquire(s.Context(), request())
	return err
}

var wall = regexp.MustCompile(`"wall":(\d+)`)

// earlier changes a record as if the wall clocks of its writers were behind.
func earlier(by time.Duration) func(*link) {
	return func(l *link) {
		l.tamper = func(value []byte) []byte {
			return wall.ReplaceAllFunc(value, func(match []byte) []byte {
				n, _ := strconv.ParseInt(string(match[len(`"wall":`):]), 10, 64)
				return strconv.AppendInt([]byte(`"wall":`), n-by.Microseconds(), 10)
			})
		}
	}
}

// A process that asks once is refused unless both the store's clock and the wall clocks say that
// the lease is over.
func TestOneShotTrustsNoClockAlone(t *testing.T) {
	verdict.Is(t, "Records: the store's clock is set forward or back", verdict.Safe)
	verdict.Is(t, "Records: the wall clock of a client is wrong", verdict.Safe)
	play(t, true, func(s scene) {
		holder, _ := s.client()
		s.acquire(holder, request())
		time.Sleep(time.Second)
		for what, change := range map[string]func(*link){
			"all clocks agree":                           func(*link) {},
			"the store's clock is an hour ahead":         func(l *link) { l.ahead = time.Hour },
			"the holder's wall clock is an hour behind":  earlier(time.Hour),
			"the store's clock is an hour behind":        func(l *link) { l.ahead = -time.Hour },
			"the holder's wall clock is an hour ahead":   earlier(-time.Hour),
			"one is ahead, but the other one runs right": func(l *link) { l.ahead = ttl },
		} {
			if err := s.try(change); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("%s: got %v, want ErrHeld", what, err)
			}
		}
		time.Sleep(ttl - time.Second - time.Millisecond)
		if err := s.try(func(*link) {}); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("a millisecond before the end of the lease: got %v, want ErrHeld", err)
		}
		time.Sleep(ttl / 100)
		for what, change := range map[string]func(*link){
			"the store's clock is behind":       func(l *link) { l.ahead = -time.Hour },
			"the holder's wall clock was ahead": earlier(-time.Hour),
		} {
			if err := s.try(change); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("after the end of the lease, %s: got %v, want ErrHeld", what, err)
			}
		}
		if err := s.try(func(*link) {}); err != nil {
			t.Errorf("after the end of the lease by both clocks: %v", err)
		}
	})
}

// A death costs one TTL if the clocks agree, whenever the waiter arrives, and two if they do not or
// the store has none.
func TestDeathCosts(t *testing.T) {
	verdict.Is(t, "Records: the holder is killed", verdict.Safe)
	verdict.Is(t, "Records: the store's clock is set forward or back", verdict.Safe)
	for _, c := range []struct {
		what    string
		clock   bool
		change  func(*link)
		least   time.Duration
		most    time.Duration
		arrives time.Duration
	}{
		{"the clocks agree", true, func(*link) {}, ttl, ttl * 11 / 10, ttl / 2},
		{"the clocks agree, and it arrives late", true, func(*link) {}, 2 * ttl, 2*ttl + time.Second, 2 * ttl},
		{"the store has no clock", false, func(*link) {}, ttl * 3 / 2, ttl * 16 / 10, ttl / 2},
		{"the store has no clock, and the waiter was there", false, func(*link) {}, ttl, ttl * 11 / 10, 0},
		{"the store's clock has been set back", true, func(l *link) { l.ahead = -time.Hour }, ttl * 3 / 2, ttl * 16 / 10, ttl / 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			play(t, c.clock, func(s scene) {
				holder, _ := s.client()
				s.acquire(holder, request())
				begun := time.Now()
				time.Sleep(c.arrives)
				other, l := s.client()
				l.set(c.change)
				s.acquire(other, waiting())
				if took := time.Since(begun); took < c.least || took > c.most {
					t.Errorf("the name was free %v after the holder's last renewal, want %v to %v", took, c.least, c.most)
				}
			})
		})
	}
}

// A process that lives remembers what it has seen between its attempts, so it finds a dead holder
// on a store without a clock.
func TestRepeatedAttemptsFindADeadHolder(t *testing.T) {
	play(t, false, func(s scene) {
		holder, _ := s.client()
		s.acquire(holder, request())
		other, _ := s.client()
		for range 2 {
			if _, err := other.Acquire(s.Context(), request()); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("got %v, want ErrHeld", err)
			}
			time.Sleep(ttl/2 + time.Millisecond)
		}
		s.acquire(other, request())
	})
}

// A grant counts from before its request was sent, and so does a lease that was granted after a
// wait.
func TestGrantCountsFromBeforeTheRequest(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		s.ok(e.Release(s.Context(), lease(s.acquire(e, request()))))
		l.set(func(l *link) { l.before, l.after = time.Second, time.Second })
		begun := time.Now()
		g := s.acquire(e, request())
		if sent := g.Sent.Sub(begun); sent != 0 || g.TTL != ttl {
			t.Errorf("the grant counts from %v after the request was sent, for %v", sent, g.TTL)
		}
	})
}

// A process that waits again repeats no beat: otherwise one that saw it before would take its new
// place for the old one, whose time is over.
func TestReturningWaiterKeepsItsPlace(t *testing.T) {
	play(t, false, func(s scene) {
		holder, _ := s.client()
		g := s.acquire(holder, request())
		other, _ := s.client()
		seen, _ := s.client()
		for range 12 { // longer than a place lasts
			go func() {
				ctx, cancel := contextFor(s, 600*time.Millisecond)
				defer cancel()
				_, _ = other.Acquire(ctx, waiting())
			}()
			time.Sleep(500 * time.Millisecond)
			if _, err := seen.Acquire(s.Context(), request()); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
			s.ok(holder.Renew(s.Context(), []driver.Lease{lease(g)})[0])
		}
		order := make(chan *recordlock.Engine, 2)
		var all sync.WaitGroup
		defer all.Wait()
		for _, e := range []*recordlock.Engine{other, seen} {
			all.Go(func() { // ends when it is granted
				g := s.acquire(e, waiting())
				order <- e
				s.ok(e.Release(s.Context(), lease(g)))
			})
			time.Sleep(500 * time.Millisecond)
		}
		s.ok(holder.Release(s.Context(), lease(g)))
		if first := <-order; first != other {
			t.Error("the second waiter was granted before the first")
		}
		<-order
	})
}

// The wall clock of a waiter is set back, and the answer to its grant is lost. Another process has seen
// that grant, and must not take the repeated one for it, although that is two thirds over.
func TestRepeatedGrantIsANewLease(t *testing.T) {
	play(t, false, func(s scene) {
		holder, _ := s.client()
		g := s.acquire(holder, request())
		e, l := s.client()
		other, _ := s.client()
		granted := make(chan driver.Grant, 2)
		go func() { granted <- s.acquire(e, waiting()) }() // ends when it is granted
		time.Sleep(time.Second)
		clock.Step(-time.Hour)
		defer clock.Step(0)
		lost := false
		l.set(func(l *link) {
			l.swap = func(next func() error) error {
				err := next()
				if list, _ := holder.List(s.Context(), driver.Query{}); lost || len(list) == 0 || len(list[0].Holders) == 0 || list[0].Holders[0].Owner == g.Owner {
					return err
				}
				lost = true
				go func() { granted <- s.acquire(other, waiting()) }() // ends when it is granted
				time.Sleep(ttl * 2 / 3)
				return driver.ErrUnavailable
			}
		})
		s.ok(holder.Release(s.Context(), lease(g)))
		first, second := <-granted, <-granted
		if early := first.Sent.Add(ttl).Sub(second.Sent); !lost || early > 0 {
			t.Errorf("lost=%t, and the second process was granted the name %v before the end of the lease", lost, early)
		}
	})
}

var lastToken = regexp.MustCompile(`"last":\d+`)

// The wall clock of a waiter is set back, so that its next token and the beat of its place follow those
// before. Its grant has the beat that another process has seen of its place, and is still a new lease.
func TestGrantIsNotItsPlace(t *testing.T) {
	play(t, false, func(s scene) {
		holder, _ := s.client()
		g := s.acquire(holder, request())
		waiter, _ := s.client()
		other, _ := s.client()
		granted := make(chan driver.Grant, 2)
		go func() { granted <- s.acquire(waiter, waiting()) }() // ends when it is granted
		time.Sleep(time.Second)
		clock.Step(-time.Hour)
		defer clock.Step(0)
		rec, err := s.store.Records().Get(s.Context(), key)
		s.ok(err)
		var st struct{ Waiters []struct{ Beat int64 } }
		s.ok(json.Unmarshal(rec.Value, &st))
		value := lastToken.ReplaceAll(rec.Value, fmt.Appendf(nil, `"last":%d`, st.Waiters[0].Beat-2))
		_, err = s.store.Records().Swap(s.Context(), key, value, rec.Version, 0)
		s.ok(err)
		if _, err := other.Acquire(s.Context(), request()); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		s.ok(holder.Release(s.Context(), lease(g)))
		first := <-granted
		go func() { granted <- s.acquire(other, waiting()) }() // ends when it is granted
		if early := first.Sent.Add(ttl).Sub((<-granted).Sent); early > 0 {
			t.Errorf("the other process was granted the name %v before the end of the lease", early)
		}
	})
}
