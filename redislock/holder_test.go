package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// TestPartitionedHolder: all traffic of a holder is lost in silence. Its lock ends
// before anybody else gets it, and its context with it.
func TestPartitionedHolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"taken", "handed-over"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			earlier, later, state := partitioned(t, name)
			verdict.Is(t, "Redis: the holder is partitioned from the server", verdict.Safe, verdict.OfHolders(state, earlier, later))
		})
	}
}

func partitioned(t *testing.T, name string) (earlier, later int64, state error) {
	s := newScene(t)
	proxy, err := faults.NewProxy(s.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	engine := redislock.New(rueidisClient(t, rueidisOption(proxy.Addr())), patient(nil))
	t.Cleanup(func() { _ = engine.Close() })
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: 4 * time.Second})
	b := s.engine(nil)
	if name == "handed-over" {
		blocker := s.hold(b, request(name))
		go func() { // ends when the lock is free
			for s.queued(name) == 0 {
				time.Sleep(time.Millisecond)
			}
			_ = blocker.release()
		}()
	}
	lock, err := locks.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	first := lock.Deadline()
	w := s.queue(b, request(name))
	s.until("renewed", func() bool { return lock.Err() != nil || lock.Deadline().After(first) })
	if lock.Err() != nil {
		t.Fatal(lock.Err())
	}
	proxy.Drop(faults.Both)
	g := w.granted()
	granted := time.Now()
	state = lock.Err()
	if !errors.Is(state, driver.ErrLost) { // exact, where a timer may be late
		t.Errorf("a second holder got in, and the first heard %v", state)
	}
	t.Logf("the lock ended %v before the next holder got in", granted.Sub(lock.Deadline()))
	select {
	case <-lock.Context().Done():
	case <-time.After(patience):
		t.Error("the context did not end")
	}
	_ = proxy.Heal()
	proxy.Reset()
	return lock.Token(), g.Token, state
}
