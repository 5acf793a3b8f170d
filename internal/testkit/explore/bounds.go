package explore

import (
	"cmp"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// MostClients is the most clients of a model.
const MostClients = 3

// Bounds say what may happen in a model, and how often. A model ignores what it does not know.
type Bounds struct {
	Name              string
	Slow              bool // only a run with FENCELOCK_SLOW exhausts them
	Clients, Acquires int  // acquires of each client
	Renews            int  // of each acquisition
	Stays             int  // the same: messages that a client waits; 0 means that places do not end
	Units             int  // of time; 0 is no bound where nothing else counts time

	// Faults of all clients together. Without Late, every request may be late in a model that uses AtOnce.
	Late, Delays, Timeouts, GiveUps, Crashes, Copies, Losses, Pauses int

	Clock  bool                 // the store has a clock
	Rates  [MostClients]float64 // of the clocks of the clients; 0 is 1
	Behind time.Duration        // of the second client's clock
	Margin time.Duration        // of the hold; 0 is the usual one
	Fair   int                  // the most units until a waiter gets a name that nobody has; 0 is not judged
}

// A Fault is a kind of fault.
type Fault int

// The kinds of faults.
const (
	None    Fault = iota
	Late          // something else happens before a request is answered
	Delay         // a unit of time passes before a request is answered
	Timeout       // a client stops waiting for an answer
	GiveUp        // a client stops waiting for the lock
	Crash         // of a client
	Copy          // a request is executed twice
	Loss          // of data
	Pause         // of everybody, for a day
	kinds
)

// Faults are how many of each kind may still happen.
type Faults [kinds]int8

func (b *Bounds) faults() (f Faults) {
	for kind, n := range map[Fault]int{Late: b.Late, Delay: b.Delays, Timeout: b.Timeouts, GiveUp: b.GiveUps, Crash: b.Crashes, Copy: b.Copies, Loss: b.Losses, Pause: b.Pauses} {
		f[kind] = int8(n)
	}
	return f
}

// Drift are clocks that are 2 % apart.
var Drift = [MostClients]float64{0.99, 1.01, 1}

// Terms returns the terms of the holds.
func (b *Bounds) Terms(ttl time.Duration) hold.Terms {
	return hold.Terms{TTL: ttl, Margin: cmp.Or(b.Margin, ttl/50+10*time.Millisecond), Leased: true}
}

// Relies reports whether a holder relies on its lock: its hold is not over, also by its clock.
func Relies(h hold.Hold, now hold.Instant) bool {
	return !h.Ended() && !h.Step(hold.Event{Kind: hold.Look}, now).Lost
}

// AtOnce returns the model if its bounds do not limit late requests. Otherwise requests are answered before
// anything else happens, except for a few late ones. sent returns the number of the last request, and land
// executes and answers those after one.
func (m Model[S]) AtOnce(sent func(s S) int, land func(s S, after int)) Model[S] {
	if m.Init.Faults()[Late] == 0 {
		return m
	}
	steps := m.Steps
	m.Steps = nil
	for _, step := range steps {
		if !step.Sends {
			m.Steps = append(m.Steps, step)
			continue
		}
		soon, late := step, step
		soon.Then = func(s S, i int) {
			before := sent(s)
			step.Then(s, i)
			land(s, before)
		}
		late.Name += ", and its request is late"
		late.If = func(s S, i int) bool { return s.Faults()[Late] > 0 && (step.If == nil || step.If(s, i)) }
		late.Then = func(s S, i int) {
			before := sent(s)
			if step.Then(s, i); sent(s) > before {
				s.Faults()[Late]--
			}
		}
		m.Steps = append(m.Steps, soon, late)
	}
	return m
}
