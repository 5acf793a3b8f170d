package redislock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// TestPrefixThatCollides: a prefix that begins as keys of other clients do is refused, in
// whatever a client is asked for first.
func TestPrefixThatCollides(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, prefix := range []string{"lock:", "record:a", "fencelock:", "a{b", "a}"} {
		e := s.engine(&redislock.Config{Prefix: prefix})
		_, acquire := e.Acquire(t.Context(), try(request("n")))
		_, list := e.List(t.Context(), driver.Query{})
		_, record := e.Records().Get(t.Context(), "k")
		_, swap := e.Records().Swap(t.Context(), "k", nil, "", 0)
		_, broken := e.Break(t.Context(), "n", "test")
		for _, err := range []error{acquire, list, record, swap, broken, e.Resize(t.Context(), "n", 1)} {
			s.says(err, driver.ErrConfig, fmt.Sprintf("the prefix %q", prefix))
		}
	}
	s.hold(s.engine(&redislock.Config{Prefix: "queue:"}), request("n")).free()
}

// TestMinimumHoldThatMayBeForgotten: a minimum hold is refused where the server may forget
// it before it is over.
func TestMinimumHoldThatMayBeForgotten(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	req := try(brief("n"))
	req.MinHold = 3 * time.Second
	_, err := s.careful().Acquire(t.Context(), req)
	s.says(err, driver.ErrInvalid, "longer than 2s")
	_, err = s.engine(&redislock.Config{AllowEviction: true}).Acquire(t.Context(), req)
	s.says(err, driver.ErrInvalid, "evict")
	req.MinHold = 2 * time.Second
	if _, err = s.careful().Acquire(t.Context(), req); errors.Is(err, driver.ErrInvalid) {
		t.Errorf("as long as MaxTTL: %v", err)
	}
}

// TestDeadWaiterIsNotListed: a waiter is listed for as long as the scripts count it, and no
// longer.
func TestDeadWaiterIsNotListed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	h := s.hold(s.engine(nil), request("n"))
	e := s.engine(nil)
	w := s.queue(e, request("n"))
	s.server.Do(t, "DEL", "fencelock:2:alive:"+e.ID())
	if st := s.status("n"); len(st.Waiters) > 0 {
		t.Errorf("listed though the server takes it for dead: %+v", st.Waiters)
	}
	w.cancel()
	h.free()
}
