package redislock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
)

func (s scene) resize(e *redislock.Engine, name string, limit int) {
	s.Helper()
	if err := e.Resize(context.Background(), name, limit); err != nil {
		s.Fatalf("resizing %q to %d: %v", name, limit, err)
	}
}

// holdAll acquires n times.
func (s scene) holdAll(n int, e *redislock.Engine, r driver.Request) (hs []hold) {
	s.Helper()
	for range n {
		hs = append(hs, s.hold(e, r))
	}
	return hs
}

// TestResizeOutlivesEverybody: the limit for everybody survives every kind of use
// of its name, is kept for as long as the last token, and ends with it.
func TestResizeOutlivesEverybody(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	two := shared(request("n"), 2)
	s.resize(a, "n", 1)
	if keys := s.keys(); len(keys) != 1 || len(s.status("n").Holders) != 0 {
		t.Errorf("a resize left %q", keys)
	}
	h := s.hold(a, two)
	s.refused(b, two)
	w := s.queue(b, request("n"))
	h.free()
	w.granted().free()
	s.hold(b, request("n")).free()
	least := request("n")
	least.MinHold = 100 * time.Millisecond
	s.hold(a, least).free()
	s.hold(a, two)
	if _, err := b.Break(t.Context(), "n", "a test"); err != nil {
		t.Fatal(err)
	}
	s.hold(a, two).free()
	s.clean("n")
	s.expiring()

	const retention = time.Hour
	c := s.engine(&redislock.Config{Retention: retention})
	used := time.Now()
	blocker := s.hold(c, two)
	s.refused(b, two)
	blocker.free()
	left := time.Duration(number64(t, s.server.Do(t, "PTTL", "fencelock:2:limit:{lock:n}"))) * time.Millisecond
	if left > retention || left+time.Since(used) < retention-time.Second {
		t.Errorf("the limit is kept for %v more, want %v from its last use", left, retention)
	}
	s.server.Do(t, "DEL", "fencelock:2:limit:{lock:n}")
	for _, h := range s.holdAll(2, b, two) {
		h.free()
	}
	s.clean("n")
}

// TestResizeInQuarantine: the limit is set, and nobody is let in by it.
func TestResizeInQuarantine(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.most = long
	a, b := s.careful(), s.careful()
	if err := a.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := s.hold(a, shared(request("n"), 1))
	w := s.queue(b, shared(brief("n"), 1))
	s.server.Do(t, "DEL", "fencelock:incarnation")
	s.resize(a, "n", 2)
	if st := s.status("n"); len(st.Holders) != 1 || st.Limit != 2 {
		t.Errorf("in quarantine: %+v", st)
	}
	s.elapse()
	w.granted().free()
	h.free()
}

// TestResizeRetried: an answer was lost, and the server was away.
func TestResizeRetried(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, tap := s.tapped(nil)
	b := s.engine(nil)
	one := shared(request("n"), 1)
	s.hold(b, one)
	w := s.queue(b, one)
	lost := false
	tap.loseReply(redislock.ResizeScript, func(redisconn.Reply) { lost = true })
	s.resize(a, "n", 2)
	w.kept()
	if st := s.status("n"); !lost || st.Limit != 2 || len(st.Holders) != 2 {
		t.Errorf("%+v", st)
	}
	hasty, _ := s.hasty(time.Second)
	s.server.Freeze(t)
	begun := time.Now()
	err := hasty.Resize(t.Context(), "n", 3)
	if took := time.Since(begun); took > 15*time.Second || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("after %v: %v", took, err)
	}
	s.server.Thaw(t)
}

// TestResizeIsRefused: a server whose memory is full keeps the limit it has.
func TestResizeIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	h := s.hold(e, shared(request("n"), 4))
	s.resize(e, "n", 2)
	s.server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	if err := e.Resize(t.Context(), "n", 3); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a full memory: %v", err)
	}
	if st := s.status("n"); st.Limit != 2 {
		t.Errorf("limit %d, want 2", st.Limit)
	}
	h.free()
}
