package explore

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// A World is what the states of all models have. O is how owners are named.
type World[O comparable] struct {
	*Bounds
	Left   Faults
	Now    time.Duration // that has passed
	Top    Claim[O]      // the greatest that a client has relied on
	Broken string        // the rule that a step has broken, or ""
}

// NewWorld returns the first world within bounds.
func NewWorld[O comparable](b *Bounds) World[O] { return World[O]{Bounds: b, Left: b.faults()} }

// Faults returns the faults that may still happen.
func (w *World[O]) Faults() *Faults { return &w.Left }

// Local returns how much time has passed by the clock of a client.
func (w *World[O]) Local(client int) time.Duration {
	return time.Duration(float64(w.Now) * cmp.Or(w.Rates[client], 1))
}

// Instant returns what the clocks of a client show.
func (w *World[O]) Instant(client int) hold.Instant {
	at := w.Local(client)
	return hold.Instant{Mono: at, Boot: at, Wall: at}
}

// RenewalDue reports whether a client sends a renewal now, if it has sent so many.
func (w *World[O]) RenewalDue(client int, h hold.Hold, renewed int) bool {
	return renewed < w.Renews && h.Step(hold.Event{Kind: hold.Tick}, w.Instant(client)).Renew
}

// A Claim is an acquisition that a client relies on, or that the engine has stored.
type Claim[O comparable] struct {
	Owner O
	Token int64
}

// claims returns what a client relies on.
type claims[O comparable] = func(client int) (Claim[O], bool)

// Rely judges by rule 2 what clients rely on after a step.
func (w *World[O]) Rely(claim claims[O]) {
	for i := range w.Clients {
		switch c, relies := claim(i); {
		case !relies:
		case c.Token > w.Top.Token:
			w.Top = c
		case c.Owner != w.Top.Owner && w.Losses == 0: // a loss ends the grants before it
			w.Broken = "2: a client relies on a token that is not greater than an earlier one"
		}
	}
}

// Judge returns the rule that is broken, or "". stored returns what the engine has, which is the zero Claim if
// nobody has the lock, and fair reports whether a waiter gets a name that nobody has.
func (w *World[O]) Judge(claim claims[O], stored func() Claim[O], fair func() bool) string {
	all := 0
	for i := range w.Clients {
		c, relies := claim(i)
		if !relies || w.Losses > 0 {
			continue
		}
		if all++; all > 1 {
			return "1: two clients rely on the lock"
		}
		if stored == nil { // several nodes have it
			continue
		}
		switch stored() {
		case c:
		case Claim[O]{}:
			return "5: a client relies on a lock that somebody else has ended"
		default:
			return "3: the lock is granted while another client relies on it"
		}
	}
	if w.Broken == "" && w.Fair > 0 && !fair() {
		return "6, 7: nobody has the name, and a waiter does not get it in time"
	}
	return w.Broken
}

// Line is the beginning of a line of a timeline, with the clients that rely on the lock.
func (w *World[O]) Line(claim claims[O]) string {
	text := fmt.Sprintf("%-4s", w.Now)
	for i := range w.Clients {
		if c, relies := claim(i); relies {
			text += fmt.Sprintf(" %d RELIES on %d", i+1, c.Token)
		}
	}
	return text
}

// A Wait is what happens from a state without further faults.
type Wait struct {
	Clients      int
	Units, Turns int                    // the most units of time, and turns of each client within one
	Wants        func() bool            // whether a client waits
	Turn         func(i int) (has bool) // client i does what it can; whether it has the name then
	Pass         func()                 // a unit of time passes
}

// Ends reports whether a client gets the name in time, or none waits any more, since the waits have ended
// with an error.
func (w Wait) Ends() bool {
	for units := 0; units <= w.Units; units++ {
		for range w.Turns {
			for i := range w.Clients {
				if w.Turn(i) {
					return true
				}
			}
		}
		if !w.Wants() {
			return true
		}
		w.Pass()
	}
	return false
}
