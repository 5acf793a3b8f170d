package redislock_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/plainlock"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// plainTTL is the TTL of a plain lock that outlives its test.
const plainTTL = time.Hour

// plainKinds are the programs, and what a renewal of a lock answers that is lost to us.
var plainKinds = []struct{ kind, renewal string }{{plainlock.Plain, "yes"}, {plainlock.RedisPy, "no"}}

// TestPlainPrograms: what a plain lock in Python and this engine see of one another. The table in
// docs/engines/redis.md has its results.
func TestPlainPrograms(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: another program locks the same key with SET NX PX", verdict.Safe)
	for _, c := range plainKinds {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			e := s.engine(nil)
			p := plainlock.Start(t, c.kind, "lock:n", plainTTL, s.server.Addr())

			// It holds and renews.
			p.Expect(t, "acquire", "yes")
			value := s.server.Do(t, "GET", "lock:n")
			if held := s.refused(e, request("n")); held.Owner != value || time.Until(held.Until) < plainTTL/2 {
				t.Errorf("while it holds: %+v", held)
			}
			if h := s.status("n").Holders; len(h) != 1 || !h[0].Foreign || h[0].Owner != value {
				t.Errorf("it is listed as %+v", h)
			}
			p.Expect(t, "renew", "yes")
			w := s.queue(e, request("n"))
			p.Expect(t, "release", "yes")
			h := w.kept()

			// We hold. It is refused, and does not take what it had before.
			p.Expect(t, "acquire", "no")
			p.Expect(t, "release", "no")
			if err := h.renew(); err != nil {
				t.Errorf("after its release: %v", err)
			}
			p.Expect(t, "renew", c.renewal)
			if err := h.renew(); err != nil {
				t.Errorf("after its renewal: %v", err)
			}
			h.free()
			h = s.hold(e, shared(request("n"), 0))
			p.Expect(t, "acquire", "no")
			if answer := p.Ask(t, "release"); !strings.Contains(answer, "WRONGTYPE") {
				t.Errorf("its release while we share the lock: %s", answer)
			}
			if err := h.renew(); err != nil {
				t.Errorf("a shared lock after its release: %v", err)
			}
			h.free()
			p.Expect(t, "acquire", "yes")
			p.Expect(t, "release", "yes")
		})
	}
}

// TestPlainProgramsTakeTurns: such programs and this library add to a counter at the same time, and
// renew in between. No addition is lost.
func TestPlainProgramsTakeTurns(t *testing.T) {
	t.Parallel()
	for _, c := range plainKinds {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			const programs, times = 2, 20
			done := make(chan string, programs)
			for range programs {
				p := plainlock.Start(t, c.kind, "lock:n", plainTTL, s.server.Addr())
				go func() { done <- p.Ask(t, "work "+strconv.Itoa(times)+" counter") }() // ends with its work
			}
			locks := fencelock.New(s.engine(nil), nil)
			ours := 0
			for left := programs; left > 0; {
				err := locks.Do(t.Context(), "n", func(context.Context) error {
					n, _ := strconv.Atoi(s.server.Do(t, "GET", "counter"))
					s.server.Do(t, "SET", "counter", strconv.Itoa(n+1))
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				ours++
				select {
				case answer := <-done:
					left--
					if answer != "yes" {
						t.Errorf("a program has lost the lock: %s", answer)
					}
				case <-time.After(5 * time.Millisecond):
				}
			}
			if got, want := s.server.Do(t, "GET", "counter"), strconv.Itoa(ours+programs*times); got != want {
				t.Errorf("counted %s, want %s: two held the lock at a time", got, want)
			}
			t.Logf("%d turns of ours beside %d of theirs", ours, programs*times)
		})
	}
}

// TestPlainRenewalLetsASecondHolderIn: a program that has lost the lock to us renews with EXPIRE all the
// same. If our lease ends by that before our next renewal, the next one gets in.
func TestPlainRenewalLetsASecondHolderIn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	p := plainlock.Start(t, plainlock.Plain, "lock:n", time.Second, s.server.Addr())
	p.Expect(t, "acquire", "yes")
	h := s.ask(e, request("n")).kept() // when it has expired
	p.Expect(t, "renew", "yes")
	g := s.ask(e, request("n")).granted()
	s.gone(h.renew())
	verdict.Is(t, "Redis: another program renews with EXPIRE a lock that it has lost to us", verdict.Guarded, verdict.OfHolders(nil, h.Token, g.Token))
}

// TestPlainReleaseDeletesOurs: between the GET and the DEL of its release the lock came to us.
func TestPlainReleaseDeletesOurs(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	p := plainlock.Start(t, plainlock.Plain, "lock:n", plainTTL, s.server.Addr())
	p.Expect(t, "acquire", "yes")
	p.Expect(t, "look", "yes")
	s.server.Do(t, "PEXPIRE", "lock:n", "1")
	h := s.ask(e, request("n")).kept()
	p.Expect(t, "delete", "yes")
	s.gone(h.renew())
}

// TestShortenedLeaseIsLogged: a renewal that finds that another program has shortened the lease says so,
// once per hold, and renews it.
func TestShortenedLeaseIsLogged(t *testing.T) {
	t.Parallel()
	for what, acquire := range map[string]func(s scene, e *redislock.Engine) hold{
		"exclusive": func(s scene, e *redislock.Engine) hold { return s.hold(e, request("n")) },
		"shared":    func(s scene, e *redislock.Engine) hold { return s.hold(e, shared(request("n"), 3)) },
		"after a wait": func(s scene, e *redislock.Engine) hold {
			first := s.hold(s.engine(nil), request("n"))
			w := s.queue(e, request("n"))
			first.free()
			return w.kept()
		},
		"adopted": func(s scene, e *redislock.Engine) hold {
			first := s.hold(s.engine(nil), request("n"))
			g, err := e.Adopt(context.Background(), first.lease(), request("n"))
			if err != nil {
				s.Fatal(err)
			}
			return hold{s, e, request("n"), g}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			var log lines
			e := s.engine(&redislock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			h := acquire(s, e)
			p := plainlock.Start(t, plainlock.Plain, "lock:n", time.Minute, s.server.Addr())
			for range 3 { // it believes that it holds the lock
				if err := h.renew(); err != nil {
					t.Fatal(err)
				}
				p.Expect(t, "renew", "yes")
			}
			if err := h.renew(); err != nil {
				t.Fatal(err)
			}
			s.until("it is logged", func() bool { return log.lines() > 0 })
			if text := log.text(); log.lines() != 1 || !strings.Contains(text, "lock:n would have ended") {
				t.Errorf("%d lines: %q", log.lines(), text)
			}
			if left, _ := strconv.Atoi(s.server.Do(t, "PTTL", "lock:n")); left < int(plainTTL.Milliseconds())/60*2 {
				t.Errorf("the lease lasts for %d ms after a renewal", left)
			}
			h.free()
		})
	}
}

// TestLeaseIsNotCalledShortened: nothing is logged about renewals that come late, whose answers are lost
// or late, or whose lease another program has prolonged.
func TestLeaseIsNotCalledShortened(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var log lines
	e, tap := s.tapped(&redislock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	h := s.hold(e, request("n"))
	renew := func() {
		t.Helper()
		if err := h.renew(); err != nil {
			t.Fatal(err)
		}
	}
	renew()
	tap.loseReply(redislock.RenewScript, func(redisconn.Reply) {})
	if err := h.renew(); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a lost answer: %v", err)
	}
	renew()
	tap.calls(func(_ redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		time.Sleep(1200 * time.Millisecond) // more than is tolerated
		r := do()
		time.Sleep(1200 * time.Millisecond)
		return r
	})
	renew()
	tap.calls(nil)
	renew()
	s.server.Do(t, "EXPIRE", "lock:n", "600")
	renew()
	s.server.Do(t, "PERSIST", "lock:n")
	renew()
	h.free()
	_ = e.Close() // waits for what is logged
	if log.lines() != 0 {
		t.Errorf("logged: %s", log.text())
	}
}
