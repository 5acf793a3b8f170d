//go:build unix

package election_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

func TestMain(m *testing.M) {
	proc.Main(nil)
	os.Exit(m.Run())
}

// On the engines that ship: a leader that stops hands over, terms do not overlap
// and their numbers grow, and everybody learns where the leader is.
func TestElectionOnRealEngines(t *testing.T) {
	for engine, connect := range engines.All(ttl) {
		t.Run(engine, func(t *testing.T) {
			client := connect(t)
			seen := make(chan string, 100)
			watching, stop := context.WithCancel(t.Context())
			var watcher, candidates sync.WaitGroup
			watcher.Go(func() { watch(watching, t, fencelock.New(client(), nil), seen) })
			th := &throne{t: t}
			for _, value := range []string{"a:1", "b:2", "c:3"} {
				c := election.New(fencelock.New(client(), nil).With(fencelock.Options{TTL: ttl}), name, &election.Config{Value: value})
				candidates.Go(func() {
					if err := c.Run(t.Context(), func(ctx context.Context) error {
						th.sit(ctx)
						defer th.rise(ctx)
						return until(ctx, seen, value)
					}); err != nil {
						t.Errorf("%s: %v", value, err)
					}
				})
			}
			candidates.Wait()
			stop()
			watcher.Wait()
			if th.count() != 3 {
				t.Errorf("%d terms", th.count())
			}
		})
	}
}

// watch sends the value of every leader it sees. Each has an owner.
func watch(ctx context.Context, t *testing.T, locks *fencelock.Locker, seen chan<- string) {
	for leader, err := range election.Observe(ctx, locks, name) {
		if err == nil {
			if leader.Owner == "" && leader != (election.Leader{}) {
				t.Errorf("a leader without an owner: %+v", leader)
			}
			seen <- leader.Value
		}
	}
}

// until waits until the watcher has seen value.
func until(ctx context.Context, seen <-chan string, value string) error {
	limit := time.After(time.Minute)
	for {
		select {
		case got := <-seen:
			if got == value {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit:
			return context.DeadlineExceeded
		}
	}
}

// On the engines that ship: what a leader publishes in its term is seen by others; engines
// without records refuse it, and their leaders publish what they always did.
func TestPublishOnRealEngines(t *testing.T) {
	for engine, connect := range engines.All(ttl) {
		t.Run(engine, func(t *testing.T) {
			client := connect(t)
			watcher := fencelock.New(client(), nil)
			c := election.New(fencelock.New(client(), nil).With(fencelock.Options{TTL: ttl}), name, &election.Config{Value: "cold"})
			for range 2 { // a second term begins anew
				if err := c.Run(t.Context(), func(ctx context.Context) error {
					wantValue(t, watcher, "cold")
					err := c.Term().Publish(ctx, "warm")
					if engine == "redlock" {
						want(t, "Publish", err, fencelock.ErrUnsupported)
						wantValue(t, watcher, "cold")
						return nil
					}
					wantValue(t, watcher, "warm")
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
