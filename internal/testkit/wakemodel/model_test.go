package wakemodel_test

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/wakemodel"
)

// TestNobodySleepsPastAFreeName visits all states of two clients with three waiters and one fault. With
// FENCELOCK_SLOW it visits larger systems, which takes some minutes.
func TestNobodySleepsPastAFreeName(t *testing.T) {
	t.Parallel()
	bounds := []wakemodel.Bound{{Clients: 2, Waiters: 3, Faults: 1, Losses: 1}}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		bounds = append(bounds, wakemodel.Bound{Clients: 2, Waiters: 4, Faults: 2}, wakemodel.Bound{Clients: 3, Waiters: 3, Faults: 2})
	}
	for _, b := range bounds {
		systems, states, violation := wakemodel.Check(wakemodel.Protocol, b)
		if violation != "" {
			t.Errorf("%+v: %s", b, violation)
		}
		t.Logf("%+v: %d systems, %d states", b, systems, states)
	}
}

// TestEachRuleIsNecessary: the model finds a system that sleeps as soon as one rule is taken out.
func TestEachRuleIsNecessary(t *testing.T) {
	t.Parallel()
	b := wakemodel.Bound{Clients: 2, Waiters: 3, Faults: 2}
	for name, change := range map[string]func(*wakemodel.Rule){
		"a client lives for longer than a hand-over":    func(r *wakemodel.Rule) { r.Alive = 3 },
		"a client touches once in a hand-over":          func(r *wakemodel.Rule) { r.Poll = 2 },
		"a shared grant is not found without a message": func(r *wakemodel.Rule) { r.Mine = false },
	} {
		rule := wakemodel.Protocol
		change(&rule)
		if systems, states, violation := wakemodel.Check(rule, b); violation == "" {
			t.Errorf("%s: no violation in %d systems, %d states", name, systems, states)
		}
	}
}
