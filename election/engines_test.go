//go:build unix

package election_test

import (
	"context"
	"testing"

	"github.com/fencelock/fencelock"
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
