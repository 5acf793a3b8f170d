package redislock_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// careful is a client that does not trust a server which may have lost its data.
func (s scene) careful() *redislock.Engine {
	return s.engine(&redislock.Config{Quarantine: true, MaxTTL: cmp.Or(s.most, 2*time.Second), ReplicaLag: s.lag})
}

// elapse makes a quarantine that has begun look as if it had lasted long enough.
func (s scene) elapse() {
	s.Helper()
	const marker = "fencelock:incarnation"
	s.until("a quarantine", func() bool {
		text := strings.Fields(s.server.Do(s, "GET", marker)) // the last known, how long, the new one, since when
		if len(text) != 4 {
			return false
		}
		text[3] = number(number64(s, text[3]) - number64(s, text[1]))
		return s.server.Do(s, "SET", marker, strings.Join(text, " "), "KEEPTTL") == "OK"
	})
}

// quarantined fails the test unless a try is refused, and a wait gets in once
// MaxTTL has passed since begun.
func (s scene) quarantined(e *redislock.Engine, begun time.Time) hold {
	s.Helper()
	if early, err := s.ask(e, try(brief("n"))).ended(); err != nil || time.Since(begun) < 2*time.Second { // it may be over
		s.says(err, driver.ErrUnavailable, "may have lost its data, and grants nothing until")
	} else {
		early.free()
	}
	h := s.hold(e, brief("n"))
	if early := begun.Add(2 * time.Second).Sub(h.Sent); early > 1100*time.Millisecond {
		s.Errorf("granted %v before the quarantine was over", early)
	}
	if end := s.server.Do(s, "TIME"); end != "" && number64(s, s.server.Do(s, "PTTL", "fencelock:incarnation")) < 0 {
		s.Error("the marker never expires")
	}
	return h
}

// TestQuarantineOfANewServer: nobody can tell a new server from one that forgot
// everything, unless it was declared new.
func TestQuarantineOfANewServer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.careful()
	begun := time.Now()
	s.quarantined(e, begun).free()
	s.hold(s.careful(), try(brief("n"))).free()

	s = newScene(t)
	e = s.careful()
	if err := e.Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.hold(e, try(brief("n"))).free()
}

// TestQuarantineAfterForgetting: FLUSHALL and restarts, with data and without. What
// stands can be renewed and released meanwhile, and nothing is handed over.
func TestQuarantineAfterForgetting(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: the server loses its data, with Quarantine", verdict.Safe)
	for _, forget := range []func(s scene){
		func(s scene) { s.server.Do(s, "FLUSHALL") },
		func(s scene) { s.server.Kill(s); s.server.Restart(s) },
	} {
		s := newScene(t, "--appendonly", "yes", "--appendfsync", "always")
		s.most = long
		a, b := s.careful(), s.careful()
		if err := a.Init(context.Background()); err != nil {
			t.Fatal(err)
		}
		h := s.hold(a, request("kept"))
		w := s.queue(b, brief("kept"))
		forget(s)
		s.until("a renewal", func() bool { err := h.renew(); return err == nil || errors.Is(err, driver.ErrNotHeld) })
		s.until("a release", func() bool { err := h.release(); return err == nil || errors.Is(err, driver.ErrNotHeld) })
		held := s.refusal(a, "kept")
		if !strings.Contains(held.Error(), "quarantine") && !strings.Contains(held.Error(), "lost its data") {
			t.Errorf("refused as %v", held)
		}
		if w.answered() {
			t.Error("handed over in quarantine")
		}
		s.elapse()
		w.granted().free()
	}
}

// refusal tries a name until the server answers.
func (s scene) refusal(e *redislock.Engine, name string) (err error) {
	s.Helper()
	s.until("an answer", func() bool {
		_, err = e.Acquire(context.Background(), try(brief(name)))
		return err != nil && !strings.Contains(err.Error(), "redis at")
	})
	return err
}

// TestQuarantineOfAPromotedReplica: A, then B, then A again: each time the server
// may lack what the other granted last.
func TestQuarantineOfAPromotedReplica(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: failover, with Quarantine and min-replicas-to-write", verdict.Safe)
	s := newScene(t)
	first := s.server
	first.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1", "min-replicas-max-lag", "2")
	second := redistest.StartRedisReplica(t, first, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
	first.WaitReplicas(t, 1)
	s.lag = 2 * time.Second
	if err := s.careful().Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.hold(s.careful(), try(brief("n"))).free()
	s.until("the replica has it", func() bool { return second.Do(t, "EXISTS", "fencelock:incarnation", "lock:n") == "1" })
	for _, master := range []*redistest.Redis{second, first} {
		other := first
		if master == first {
			other = second
		}
		master.Replicaof(t, "no", "one")
		other.Replicaof(t, "127.0.0.1", number(int64(master.Port())))
		other.WaitLink(t)
		s.server = master
		s.quarantined(s.careful(), time.Now()).free()
		s.until("the replica has it", func() bool {
			return other.Do(t, "GET", "fencelock:incarnation") == master.Do(t, "GET", "fencelock:incarnation")
		})
	}
}

// TestMarkerStays: a server that is used once a month is known again the next time. A
// grant and a listing make its marker stay.
func TestMarkerStays(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const month = 30 * 24 * time.Hour
	stays := func(what string) {
		t.Helper()
		s.until(what, func() bool {
			return number64(t, s.server.Do(t, "PTTL", "fencelock:incarnation")) > (2 * month).Milliseconds()
		})
	}
	if err := s.careful().Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	stays("declared new")
	s.server.Do(t, "PEXPIRE", "fencelock:incarnation", "100000")
	s.hold(s.careful(), try(brief("n"))).free()
	stays("used")
	s.server.Do(t, "PEXPIRE", "fencelock:incarnation", "100000")
	if _, err := s.careful().List(t.Context(), driver.Query{}); err != nil {
		t.Fatal(err)
	}
	stays("looked at")
}

// TestQuarantineNeedsInfo: without the right to INFO nothing can be told.
func TestQuarantineNeedsInfo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.server.Do(t, "ACL", "SETUSER", "default", "-info")
	_, err := s.ask(s.careful(), try(brief("n"))).ended()
	s.says(err, driver.ErrConfig, "needs the right to INFO")
	if _, err := s.ask(s.careful(), request("n")).ended(); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a TTL of a minute: %v", err)
	}
}
