package sim

// Violation is a kind of promise that was broken.
type Violation int

// The violations.
const (
	Overlap   Violation = iota // two believed in a lock that only one could have, or had it in turn unnoticed
	Disorder                   // a token that is not greater than that of an earlier acquisition, or not unique
	Stillborn                  // a lock was handed out whose lease was over
	Leftover                   // all was well, and yet a lease had to run out
	Poisoned                   // a token is further ahead of all clocks than the cap allows
	Leak                       // the guard let a write pass after one of a later acquisition
	Refused                    // the guard refused a rightful holder
	Ghost                      // a node gave a lock to a request that nobody wanted any more
	Revived                    // a hold that had ended did something
	Misnamed                   // a node shows a holder with another's token
	Early                      // a minimum hold was not over
	Stuck                      // a free name was kept for nobody
	Overtaken                  // one who came later was told first
	Closed                     // a take that failed closed the name for its minimum hold
	violations
)

var violationNames = [...]string{"overlap", "token order", "stillborn", "leftover", "poisoned", "leak", "refused",
	"ghost", "revived", "misnamed", "early", "stuck", "overtaken", "closed"}

// String returns the violation's name.
func (v Violation) String() string { return violationNames[v] }

// Tally is what came of a number of schedules.
type Tally struct {
	Schedules, Events int64
	Acquired, Missed  int64 // takes that won, and that did not
	Renewed, Lost     int64 // renewals, and holds that ended against their will
	Writes            int64 // that reached the resource
	Stale             int64 // of these: refused by the guard, which a resource without one accepts
	Trailing          int64 // let through although a shared acquisition came later
	Broken            [violations]int64
	Seeds             [violations]uint64 // of the first schedule that showed it
}

// Add adds another tally; its seeds count if there are none yet.
func (t *Tally) Add(o *Tally) {
	t.Schedules += o.Schedules
	t.Events += o.Events
	t.Acquired += o.Acquired
	t.Missed += o.Missed
	t.Renewed += o.Renewed
	t.Lost += o.Lost
	t.Writes += o.Writes
	t.Stale += o.Stale
	t.Trailing += o.Trailing
	for v := range o.Broken {
		if t.Broken[v] == 0 {
			t.Seeds[v] = o.Seeds[v]
		}
		t.Broken[v] += o.Broken[v]
	}
}
