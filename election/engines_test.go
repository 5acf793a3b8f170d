//go:build unix

package election_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

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

// On the engines that ship: the best of those that wait leads in the end, and a leader resigns to a
// better candidate that comes later. Another one may lead for the settle time, if it looks when the
// list is incomplete.
func TestRanksOnRealEngines(t *testing.T) {
	t.Parallel()
	for engine, connect := range engines.All(ttl) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			client := connect(t)
			c := court{terms: make(chan int, 100)}
			end := map[int]func(){}
			end[3] = c.begin(t, client(), 3)
			c.wantLeader(t, 3) // before a better candidate waits: a holder whose term has not begun gives way to it
			for n, rank := range []int{2, 1} {
				end[rank] = c.begin(t, client(), rank)
				waitQueued(t, client(), n+1)
			}
			c.wantLeader(t, 1) // after the settle time
			end[0] = c.begin(t, client(), 0)
			c.wantLeader(t, 0)
			waitQueued(t, client(), 3)
			end[0]()
			c.wantLeader(t, 1)
			for _, rank := range []int{1, 2, 3} {
				end[rank]()
			}
		})
	}
}

// On the engines that ship: a transfer reaches the candidate on the given host.
func TestTransferOnRealEngines(t *testing.T) {
	t.Parallel()
	for engine, connect := range engines.All(ttl) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			client := connect(t)
			var candidates []*election.Candidate
			for i, host := range []string{"web0", "web1", "web2", "web3"} {
				locks := fencelock.New(onHost{client().(wholeEngine), host}, nil).With(fencelock.Options{TTL: ttl})
				candidates = append(candidates, election.New(locks, name, nil))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { // ends with ctx
					defer close(done)
					_ = candidates[i].Run(ctx, obey)
				}()
				defer func() {
					cancel()
					<-done
				}()
				waitQueued(t, client(), i)
			}
			for _, to := range []int{2, 3, 0} {
				locks, host := fencelock.New(client(), nil), "web"+string(rune('0'+to))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				token, err := int64(0), fencelock.ErrUnavailable
				for errors.Is(err, fencelock.ErrUnavailable) && ctx.Err() == nil { // again on a busy machine
					_, token, err = election.Transfer(ctx, locks, name, host, "a test")
				}
				cancel()
				term := candidates[to].Term()
				if err != nil || term == nil || term.Token() <= token {
					t.Errorf("to %d: %v, term %v after the token %d", to, err, term, token)
				}
			}
		})
	}
}

// court has candidates that report the rank of each one that begins to work.
type court struct {
	terms   chan int
	leading atomic.Int32
}

// begin runs a candidate until the returned function is called.
func (c *court) begin(t *testing.T, engine driver.Engine, rank int) (end func()) {
	t.Helper()
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl})
	candidate := election.New(locks, name, &election.Config{Rank: rank, Settle: 2 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		_ = candidate.Run(ctx, func(ctx context.Context) error {
			if c.leading.Add(1) > 1 {
				t.Error("two lead")
			}
			c.terms <- rank
			<-ctx.Done()
			c.leading.Add(-1)
			return context.Cause(ctx)
		})
	}()
	return func() {
		cancel()
		<-done
	}
}

// wantLeader waits until a candidate of that rank begins a term.
func (c *court) wantLeader(t *testing.T, rank int) {
	t.Helper()
	for limit := time.After(time.Minute); ; {
		select {
		case got := <-c.terms:
			if got == rank {
				return
			}
			t.Logf("rank %d leads before %d", got, rank)
		case <-limit:
			t.Fatalf("rank %d does not lead", rank)
		}
	}
}

// waitQueued waits until n candidates are listed as waiting, and one leads.
func waitQueued(t *testing.T, engine driver.Engine, n int) {
	t.Helper()
	locks := fencelock.New(engine, nil)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if s, err := locks.Status(t.Context(), name); err == nil && len(s.Waiters) == n && len(s.Holders) == 1 {
			return
		}
	}
	t.Fatalf("%d candidates do not wait", n)
}
