package fencelock_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// instantly is an engine that grants everything at once.
type instantly struct{ tokens atomic.Int64 }

func (*instantly) Traits() driver.Traits { return driver.Traits{Engine: "instantly", Leased: true} }

func (e *instantly) Acquire(_ context.Context, req driver.Request) (driver.Grant, error) {
	token := e.tokens.Add(1)
	return driver.Grant{Token: token, Floor: token, Sent: time.Now(), TTL: req.TTL}, nil
}

func (*instantly) Renew(_ context.Context, leases []driver.Lease) []error {
	return make([]error, len(leases))
}

func (*instantly) Release(context.Context, driver.Lease) error { return nil }

// A hot loop makes the last lock go, a timer fire and the next lock come in every
// order that the machine has to offer. None of them may leave a lock without a timer.
func TestHotLoopLeavesNoLockWithoutATimer(t *testing.T) {
	const loops = 2
	turns := 50_000
	if os.Getenv("FENCELOCK_SLOW") != "" {
		turns = 20_000_000
	}
	locks := fencelock.New(&instantly{}, nil)
	begun := time.Now()
	var doubts atomic.Int64
	var all sync.WaitGroup
	for range loops {
		all.Go(func() { // ends after its turns, or with the first lock that has no timer
			for turn := range turns / loops {
				lock, err := locks.Acquire(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				if !fencelock.Attended(locks) {
					doubts.Add(1)
					if err := soon(func() bool { return fencelock.Attended(locks) }); err != nil {
						t.Errorf("acquisition %d has no timer: %v", turn, err)
						return
					}
				}
				if err := lock.Release(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d acquisitions in %v; %d times the timer had fired and nobody was awake yet", turns, time.Since(begun), doubts.Load())
}

// soon waits until something that happens by itself has happened.
func soon(happened func() bool) error {
	const limit = 20 * time.Second // far longer than a busy machine lets a timer wait
	for begun := time.Now(); !happened(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > limit {
			return fmt.Errorf("not within %v", limit)
		}
	}
	return nil
}
