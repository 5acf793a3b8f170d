package wakemodel_test

import (
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/wakemodel"
)

// TestNobodySleepsPastAFreeName visits all states of two clients with three waiters, one fault and one
// lost message. With FENCELOCK_SLOW it visits larger systems, which takes some minutes.
func TestNobodySleepsPastAFreeName(t *testing.T) {
	t.Parallel()
	bounds := []wakemodel.Bound{{Clients: 2, Waiters: 3, Faults: 1, Losses: 1}}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		bounds = append(bounds,
			wakemodel.Bound{Clients: 2, Waiters: 4, Faults: 2, Losses: 1},
			wakemodel.Bound{Clients: 3, Waiters: 3, Faults: 3, Losses: 1},
			wakemodel.Bound{Clients: 3, Waiters: 4, Faults: 2, Losses: 1})
	}
	for _, b := range bounds {
		begun := time.Now()
		systems, states, violation := wakemodel.Check(wakemodel.Protocol, b)
		if violation != "" {
			t.Errorf("%+v: %s", b, violation)
		}
		t.Logf("%+v: %d systems, %d states, %v", b, systems, states, time.Since(begun).Round(time.Second))
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
		"the entry of a dead client stays":              func(r *wakemodel.Rule) { r.Leave = false },
		"a client does not put its entries back":        func(r *wakemodel.Rule) { r.Rejoin = false },
		"a touch does not hand on":                      func(r *wakemodel.Rule) { r.Serve = false },
		"a grant without confirmation lasts for a TTL":  func(r *wakemodel.Rule) { r.Expire = false },
	} {
		rule := wakemodel.Protocol
		change(&rule)
		if systems, states, violation := wakemodel.Check(rule, b); violation == "" {
			t.Errorf("%s: no violation in %d systems, %d states", name, systems, states)
		}
	}
}
