package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/redislock"
)

// TestPartitionedHolder: all traffic of a holder is lost in silence. Its context
// ends before anybody else gets the lock.
func TestPartitionedHolder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	proxy, err := faults.NewProxy(s.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	engine := redislock.New(rueidisClient(t, rueidisOption(proxy.Addr())), nil)
	t.Cleanup(func() { _ = engine.Close() })
	locks := fencelock.New(engine, &fencelock.Config{TTL: 2 * time.Second})
	for _, name := range []string{"taken", "handed-over"} {
		b := s.engine(nil)
		blocker := s.hold(b, request("handed-over"))
		if name == "handed-over" {
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
		w := s.queue(b, request(name))
		time.Sleep(700 * time.Millisecond) // it has been renewed
		if lock.Err() != nil {
			t.Fatal(lock.Err())
		}
		proxy.Drop(faults.Both)
		lost := make(chan time.Time, 1)
		go func() { // ends at the deadline
			<-lock.Context().Done()
			lost <- time.Now()
		}()
		w.granted().free()
		granted := time.Now()
		select {
		case at := <-lost:
			t.Logf("%s: the context ended %v before the next holder got in", name, granted.Sub(at))
		default:
			t.Errorf("%s: a second holder got in before the context of the first ended", name)
		}
		if err := lock.Err(); !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
		_ = proxy.Heal()
		proxy.Reset()
		_ = lock.Release()
		_ = blocker.release()
	}
}
