package redislock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
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

// TestResizeUp: waiters of two clients who fit into a greater limit are granted at
// once, in order, and no more of them.
func TestResizeUp(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b, c := s.engine(nil), s.engine(nil), s.engine(nil)
	two := shared(request("n"), 2)
	hs := s.holdAll(2, a, two)
	ws := []*call{s.queue(a, two), s.queue(b, weighing(two, 2)), s.queue(b, two)}
	s.until("the clients leave the server alone", func() bool {
		return s.status("n").Limit == 2 && len(s.status("n").Waiters) == 3
	})
	begun := time.Now()
	s.resize(c, "n", 5)
	for _, w := range ws[:2] {
		hs = append(hs, w.kept())
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("a raise was heard of after %v", took)
	} else {
		t.Logf("a raise let two waiters in within %v", took)
	}
	if ws[2].answered() || s.status("n").Limit != 5 {
		t.Errorf("%+v", s.status("n"))
	}
	s.resize(c, "n", 6)
	hs = append(hs, ws[2].granted())
	for _, h := range hs {
		h.free()
	}
	s.clean("n")
	s.expiring()
}

// TestResizeDown: holders stay who are too many for a smaller limit, and nobody
// gets in until enough of them have left.
func TestResizeDown(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	four := shared(request("n"), 4)
	hs := s.holdAll(4, a, four)
	w := s.queue(b, four)
	s.resize(b, "n", 2)
	for i, h := range hs[:3] {
		if err := h.renew(); err != nil {
			t.Errorf("a holder: %v", err)
		}
		if w.answered() {
			t.Errorf("a waiter got in beside %d holders", 4-i)
		}
		s.refused(a, four)
		h.free()
	}
	g := w.kept()
	s.refused(b, four)
	hs[3].free()
	g.free()
	s.clean("n")
	s.expiring()
}

// TestResizeUnitesLimits: while the limit is one for everybody, requests may name
// different ones; but not none.
func TestResizeUnitesLimits(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	s.resize(a, "n", 3)
	blocker := s.hold(a, request("n"))
	ws := []*call{s.queue(a, shared(request("n"), 2)), s.queue(b, weighing(shared(request("n"), 9), 2)), s.queue(b, shared(request("n"), 5))}
	unlimited := s.queue(b, shared(request("n"), 0))
	blocker.free()
	first, second := ws[0].kept(), ws[1].kept()
	if ws[2].answered() {
		t.Error("three of three are taken, and a fourth got in")
	}
	if _, err := s.ask(a, try(shared(request("n"), 0))).ended(); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no limit beside a limit: %v", err)
	}
	second.free()
	third := ws[2].kept()
	if _, err := unlimited.ended(); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a waiter without a limit: %v", err)
	}
	first.free()
	third.free()
	s.clean("n")
}

// TestTooHeavyForTheNewLimit: a request that weighs more than a lowered limit gets
// in alone, and its client need not know.
func TestTooHeavyForTheNewLimit(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	five := shared(request("n"), 5)
	light := s.hold(a, five)
	heavy := s.queue(b, weighing(five, 5))
	s.resize(a, "n", 1)
	s.resize(a, "n", 2)
	if heavy.answered() {
		t.Error("a request for 5 got in beside 1 of 2")
	}
	light.free()
	h := heavy.kept()
	s.refused(a, five)
	h.free()
	h = s.hold(b, weighing(five, 4))
	s.refused(a, five)
	h.free()
	s.clean("n")
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
	left := time.Duration(number64(t, s.server.Do(t, "PTTL", "fence:{lock:n}"))) * time.Millisecond
	if left > retention || left+time.Since(used) < retention-time.Second {
		t.Errorf("the limit is kept for %v more, want %v from its last use", left, retention)
	}
	s.server.Do(t, "PEXPIRE", "fence:{lock:n}", "1")
	s.until("forgotten", func() bool { return s.server.Do(t, "EXISTS", "fence:{lock:n}") == "0" })
	for _, h := range s.holdAll(2, b, two) {
		h.free()
	}
	s.clean("n")
}

// TestResizeKeepsTokensRising: whether or not the last token is remembered.
func TestResizeKeepsTokensRising(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	r := rising{scene: s}
	r.next(s.hold(e, request("n"))).free()
	s.resize(e, "n", 2)
	r.next(s.hold(e, shared(request("n"), 5))).free()
	s.server.Do(t, "DEL", "fence:{lock:n}")
	s.resize(e, "n", 2)
	r.next(s.hold(e, request("n"))).free()

	ahead := time.Now().Add(100 * 24 * time.Hour).UnixMicro()
	s.server.Do(t, "SET", "fence:{lock:n}", number(ahead)+" "+number(ahead)+" - 0", "PX", "60000")
	s.resize(e, "n", 3)
	if g := s.hold(e, request("n")); g.Token != ahead+1 {
		t.Errorf("token %d, want %d", g.Token, ahead+1)
	}
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

// TestResizeIsRefused: what makes no sense is not sent, and a server whose memory
// is full keeps the limit it has.
func TestResizeIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	for name, limit := range map[string]int{"": 1, "n": 0, "m": -1} {
		if err := e.Resize(t.Context(), name, limit); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q to %d: %v", name, limit, err)
		}
	}
	if keys := s.keys(); len(keys) != 0 {
		t.Errorf("a refused resize left %q", keys)
	}
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

// TestClusterResize: all of it lies in one slot, and clients at other nodes hear of
// it.
func TestClusterResize(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	a, b := clusterEngine(t, c), clusterEngine(t, c)
	s := scene{TB: t, server: c.Owner(t, c.Slot("lock:n"))}
	two := shared(request("n"), 2)
	first := s.hold(a, weighing(two, 2))
	second, third := s.queue(b, two), s.queue(a, weighing(two, 2))
	s.resize(b, "n", 5)
	for _, h := range []hold{first, second.granted(), third.granted()} {
		h.free()
	}
	s.clean("n")
	s.expiring()
}

// TestResizeUnderTheDocumentedRule: weights and limits need no right that other
// locks do not need.
func TestResizeUnderTheDocumentedRule(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.server.Do(t, documentedRule(t)...)
	o := rueidisOption(s.server.Addr())
	o.Username, o.Password = "locks", "PASSWORD"
	e := redislock.New(rueidisClient(t, o), patient(nil))
	t.Cleanup(func() { _ = e.Close() })
	three := shared(request("n"), 3)
	light, heavy := s.hold(e, three), s.hold(e, weighing(three, 2))
	w := s.queue(e, weighing(three, 3))
	s.resize(e, "n", 6)
	for _, h := range []hold{light, heavy, w.kept()} {
		if err := h.renew(); err != nil {
			t.Error(err)
		}
		h.free()
	}
}
