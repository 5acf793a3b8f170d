package redislock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// TestForeignHolder: whatever another program keeps at lock:<name> excludes us,
// and is told on one line.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	for _, c := range []struct {
		set   []string
		owner string
		until bool
	}{
		{[]string{"SET", "lock:n", "someone", "NX", "PX", "60000"}, "someone", true},
		{[]string{"SET", "lock:n", "some\none"}, "some.one", false},
		{[]string{"HSET", "lock:n", "uuid:1", "1"}, "WRONGTYPE", false},
		{[]string{"RPUSH", "lock:n", "x"}, "WRONGTYPE", false},
	} {
		s.server.Do(t, "FLUSHALL")
		s.server.Do(t, c.set...)
		for _, req := range []driver.Request{request("n"), shared(request("n"), 0), shared(request("n"), 2)} {
			held := s.refused(e, req)
			if !strings.HasPrefix(held.Owner, c.owner) || held.Until.IsZero() == c.until || strings.Contains(held.Error(), "\n") {
				t.Errorf("%v, mode %v: %+v", c.set, req.Mode, held)
			}
		}
		w := s.queue(e, request("n"))
		time.Sleep(100 * time.Millisecond)
		if w.answered() {
			t.Errorf("%v: a waiter got in", c.set)
		}
		w.cancel()
		if _, err := w.ended(); !errors.Is(err, driver.ErrHeld) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.owner) {
			t.Errorf("%v: the wait ended with %v", c.set, err)
		}
		if got := s.server.Do(t, "TYPE", "lock:n"); got == "none" {
			t.Errorf("%v: it is gone", c.set)
		}
	}
}

// TestForeignRelease: nobody tells us when another program lets go, by its
// compare-and-delete or by its expiry, and yet the waiter gets in soon.
func TestForeignRelease(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: another program locks the same key with SET NX PX", verdict.Safe)
	s := newScene(t)
	e := s.engine(nil)
	s.server.Do(t, "SET", "lock:n", "someone", "NX", "PX", "60000")
	w := s.queue(e, request("n"))
	begun := time.Now()
	s.server.Do(t, "EVAL", compareAndDelete, "1", "lock:n", "someone")
	w.granted().free()
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("a foreign release was noticed after %v", took)
	} else {
		t.Logf("a foreign release was noticed after %v", took)
	}
	s.server.Do(t, "SET", "lock:n", "someone", "NX", "PX", "300")
	s.queue(e, request("n")).granted().free()
	s.clean("n")
}

// TestForeignDelete: another program deletes our lock. The holder learns of it at
// its next renewal, frees nobody else's lock, and the next waiter gets in.
func TestForeignDelete(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	for _, req := range []driver.Request{request("n"), shared(request("n"), 0)} {
		req.TTL = 4 * time.Second
		h := s.hold(a, req)
		stop := keep(h)
		w := s.queue(b, brief("n"))
		s.server.Do(t, "DEL", "lock:n")
		stop()
		s.gone(h.renew())
		g := w.granted()
		s.gone(h.release())
		if g.Token <= h.Token {
			t.Errorf("the next one has token %d after %d", g.Token, h.Token)
		}
		verdict.Is(t, "Redis: the lock key is deleted or evicted", verdict.Guarded, verdict.OfHolders(nil, h.Token, g.Token))
		g.free()
		s.clean("n")
	}
}

// TestForeignExpire: another program sets the expiry of our lock without looking whose it is. A renewal
// restores the lease if it comes in time. Otherwise the next one gets in, and the token tells them apart.
func TestForeignExpire(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	h := s.hold(e, request("n"))
	s.server.Do(t, "EXPIRE", "lock:n", "60")
	if err := h.renew(); err != nil {
		t.Errorf("a renewal in time: %v", err)
	}
	s.server.Do(t, "PEXPIRE", "lock:n", "1")
	s.until("the lease has ended", func() bool { return s.server.Do(t, "EXISTS", "lock:n") == "0" })
	g := s.hold(e, request("n"))
	s.gone(h.renew())
	verdict.Is(t, "Redis: another program renews with EXPIRE a lock that it has lost to us", verdict.Guarded, verdict.OfHolders(nil, h.Token, g.Token))
	g.free()
	s.clean("n")
}

// TestExcludesForeign: SET NX of another program is refused for as long as anybody
// of ours holds the lock, or is being handed it.
func TestExcludesForeign(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: another program locks the same key with SET NX PX", verdict.Safe)
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	refused := func(when string) {
		t.Helper()
		if got := s.server.Do(t, "SET", "lock:n", "someone", "NX", "PX", "60000"); got != "" {
			t.Fatalf("SET NX %s: %q", when, got)
		}
	}
	h := s.hold(a, request("n"))
	refused("while it is held")
	w := s.queue(b, request("n"))
	freed := time.Now()
	tap.texts(func(text string, pass func(string)) {
		got := s.server.Do(t, "SET", "lock:n", "someone", "NX", "PX", "60000")
		if got != "" && time.Since(freed) < redislock.LongGrant {
			t.Errorf("SET NX while it is handed over: %q", got)
		}
		pass(text)
	})
	h.free()
	g := w.kept()
	refused("after the hand-over")
	g.free()
	tap.texts(nil)

	short := s.hold(a, shared(brief("n"), 0))
	long := s.hold(b, shared(request("n"), 0))
	third := s.hold(b, shared(brief("n"), 0))
	short.free()
	refused("while some of the shared holders stay")
	s.until("a shared lease is over", func() bool { return len(s.status("n").Holders) == 1 })
	s.gone(third.renew())
	refused("while a shared holder with a long lease lives")
	if err := long.renew(); err != nil {
		t.Error(err)
	}
	long.free()
	if got := s.server.Do(t, "SET", "lock:n", "someone", "NX", "PX", "60000"); got != "OK" {
		t.Errorf("SET NX of a free lock: %q", got)
	}
	s.gone(h.release())
	if got := s.server.Do(t, "GET", "lock:n"); got != "someone" {
		t.Errorf("our late release left %q", got)
	}
}

// TestMinimumHoldBindsUsAlone: a program that takes the plain lock does not ask for it,
// and what it has taken is respected.
func TestMinimumHoldBindsUsAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	req := request("n")
	req.MinHold = time.Hour
	s.hold(e, req).free()
	s.refused(e, request("n"))
	if got := s.server.Do(t, "SET", "lock:n", "someone", "NX", "PX", "60000"); got != "OK" {
		t.Errorf("SET NX during a minimum hold: %q", got)
	}
	if held := s.refused(e, request("n")); held.Owner != "someone" {
		t.Errorf("held by %+v", held)
	}
}

const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// TestOtherFormat: a lock in the format of an earlier or a later version, exclusive or shared, is
// refused in words that say so, and is left alone: versions with other rules do not wait together.
func TestOtherFormat(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	for _, format := range []string{"fencelock:1", "fencelock:3"} {
		x, sh := "x"+format, "s"+format
		s.server.Do(t, "SET", "lock:"+x, format+" somebody 1", "PX", "600000")
		s.server.Do(t, "ZADD", "lock:"+sh, "1", format+" shared 5")
		s.server.Do(t, "PEXPIRE", "lock:"+sh, "600000")
		for _, name := range []string{x, sh} {
			for _, req := range []driver.Request{try(request(name)), request(name), shared(try(request(name)), 5)} {
				_, err := s.ask(e, req).ended()
				s.says(err, driver.ErrConfig, "format "+format)
			}
			s.until("it waits no more", func() bool { return s.queued(name) == 0 })
			if st := s.status(name); len(st.Holders) != 1 || !st.Holders[0].Foreign || len(st.Waiters) != 0 {
				t.Errorf("%s: %+v", name, st)
			}
		}
	}
}
