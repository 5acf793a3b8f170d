package election_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

// Campaigns and terms are of the kind election, in traces and lists, whatever kind the Locker has.
func TestKindOfTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []string
		locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: &fencelock.Tracer{
			AcquireStart: func(ctx context.Context, d fencelock.TraceAcquireStart) context.Context {
				kinds = append(kinds, d.Kind)
				return ctx
			},
			HoldEnd: func(_ context.Context, d fencelock.TraceHoldEnd) { kinds = append(kinds, d.Kind) },
		}}).With(fencelock.Options{Kind: fencelock.KindLock})
		if err := election.Run(t.Context(), locks, "billing", func(ctx context.Context) error {
			s, err := locks.Status(ctx, "billing")
			if err == nil && s.Holders[0].Kind != fencelock.KindElection {
				t.Errorf("the leader is listed as %+v", s.Holders[0])
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if len(kinds) != 2 || kinds[0] != fencelock.KindElection || kinds[1] != fencelock.KindElection {
			t.Errorf("kinds of a term: %q", kinds)
		}
	})
}
