package explore

import "fmt"

// A Claim is an acquisition that a client relies on, or that the engine has stored.
type Claim[O comparable] struct {
	Owner O
	Token int64
}

// A Judge knows the rules about clients that rely on the lock. claim returns what a client relies on.
type Judge[O comparable] struct {
	Top    Claim[O] // the greatest that a client has relied on
	Broken string   // the rule that a step has broken, or ""
	Lossy  bool     // the engine may lose its data, which ends the grants before that
}

// Rely judges by rule 2 what clients rely on after a step.
func (j *Judge[O]) Rely(clients int, claim func(client int) (Claim[O], bool)) {
	for i := range clients {
		switch c, relies := claim(i); {
		case !relies:
		case c.Token > j.Top.Token:
			j.Top = c
		case c.Owner != j.Top.Owner && !j.Lossy:
			j.Broken = "2: a client relies on a token that is not greater than an earlier one"
		}
	}
}

// Check returns the rule that is broken, or "". stored returns what the engine has, if there is one engine.
func (j *Judge[O]) Check(clients int, claim func(client int) (Claim[O], bool), stored func() (Claim[O], bool)) string {
	if j.Broken != "" || j.Lossy {
		return j.Broken
	}
	all := 0
	for i := range clients {
		c, relies := claim(i)
		if !relies {
			continue
		}
		if all++; all > 1 {
			return "1: two clients rely on the lock"
		}
		if stored == nil {
			continue
		}
		switch has, some := stored(); {
		case !some:
			return "5: a client relies on a lock that somebody else has ended"
		case has != c:
			return "3: the lock is granted while another client relies on it"
		}
	}
	return ""
}

// Relying returns which clients rely on the lock, for a timeline.
func Relying[O comparable](clients int, claim func(client int) (Claim[O], bool)) (text string) {
	for i := range clients {
		if c, relies := claim(i); relies {
			text += fmt.Sprintf("  %d RELIES on %d", i+1, c.Token)
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
