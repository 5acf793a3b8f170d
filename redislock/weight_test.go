package redislock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// weighing gives a shared request a weight.
func weighing(r driver.Request, weight int) driver.Request {
	r.Weight = weight
	return r
}

// TestWeightsSum: the weights of the holders are what counts, in every order of
// heavy and light ones.
func TestWeightsSum(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	five := shared(request("n"), 5)
	light := s.hold(a, five)
	two := s.hold(b, weighing(five, 2))
	if key := s.server.Do(t, "GET", "lock:n"); key != "fencelock shared 5 w" {
		t.Errorf("the key says %q", key)
	}
	s.expiring()
	s.refused(a, weighing(five, 3))
	last := s.hold(a, weighing(five, 2))
	s.refused(b, five)

	st := s.status("n")
	var weights []int
	for _, h := range st.Holders {
		weights = append(weights, h.Weight)
	}
	if st.Mode != driver.Shared || st.Limit != 5 || len(weights) != 3 || weights[0] != 1 || weights[1] != 2 || weights[2] != 2 {
		t.Errorf("mode %v, limit %d, weights %v; want shared, 5, [1 2 2]", st.Mode, st.Limit, weights)
	}
	light.free()
	s.refused(b, weighing(five, 2))
	two.free()
	three := s.hold(b, weighing(five, 3))
	for _, h := range []hold{last, three} {
		if err := h.renew(); err != nil {
			t.Errorf("weight %d: %v", h.req.Weight, err)
		}
		h.free()
	}
	s.clean("n")
	s.hold(a, five).free()
	s.expiring()
}

// TestHeavyHeadIsNotPassed: a heavy waiter blocks the light ones behind it, which
// would fit, and gets in before them.
func TestHeavyHeadIsNotPassed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	five := shared(request("n"), 5)
	two, one := s.hold(a, weighing(five, 2)), s.hold(a, five)
	heavy := s.queue(b, weighing(five, 4))
	light := s.queue(a, five)
	s.refused(b, five)
	if st := s.status("n"); len(st.Waiters) != 2 || st.Waiters[0].Weight != 4 || st.Waiters[1].Weight != 1 {
		t.Errorf("waiters %+v", st.Waiters)
	}
	one.free()
	s.refused(b, five)
	if heavy.answered() || light.answered() {
		t.Error("somebody got in beside 2 of 5, with 4 at the head")
	}
	two.free()
	h, l := heavy.granted(), light.granted()
	if l.Token <= h.Token {
		t.Errorf("the light one has token %d, the heavy one %d", l.Token, h.Token)
	}
	h.free()
	l.free()
	s.clean("n")
	s.expiring()
}

// TestWeightOfTheDead: a heavy holder dies, and its weight comes back as its lease
// ends.
func TestWeightOfTheDead(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	req := weighing(shared(request("n"), 5), 4)
	req.TTL = 4 * time.Second
	dead := s.hold(a, req)
	dies := keep(dead)
	light := s.hold(a, shared(request("n"), 5))
	w := s.queue(b, weighing(shared(request("n"), 5), 2))
	dies()
	begun := time.Now()
	g := w.granted()
	took := time.Since(begun)
	if took > 20*time.Second {
		t.Errorf("the weight of the dead came back after %v, want its TTL of 4 s", took)
	}
	t.Logf("the weight of the dead came back after %v", took)
	s.gone(dead.release())
	g.free()
	light.free()
	s.clean("n")
}

// TestTextOfTheExclusive: a request that is not shared has no weight in its text.
func TestTextOfTheExclusive(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	s.hold(e, request("x"))
	s.hold(e, shared(request("s"), 0))
	if text := s.server.Do(t, "GET", "lock:x"); !strings.Contains(text, " x 0 600000 0 ") {
		t.Errorf("an exclusive holder is %q", text)
	}
	for _, name := range []string{"x", "s"} {
		if st := s.status(name); st.Limit != 0 || len(st.Holders) != 1 || st.Holders[0].Weight != 0 {
			t.Errorf("%s: %+v", name, st)
		}
	}
}
