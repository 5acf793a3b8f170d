package sim

// Violation is a kind of broken guarantee.
type Violation int

// The violations.
const (
	Overlap   Violation = iota // two clients held an exclusive lock at the same time, or one after the other without the first learning of its loss
	Disorder                   // a token is not greater than that of an earlier acquisition, or not unique
	Stillborn                  // a lock was granted with an expired lease
	Leftover                   // a lease had to expire although nothing went wrong
	Poisoned                   // a token is further ahead of all clocks than the cap allows
	Leak                       // the guard accepted a write after one of a later acquisition
	Refused                    // the guard rejected a rightful holder
	Ghost                      // a node granted to a request that was no longer wanted
	Revived                    // an ended hold did something
	Misnamed                   // a node reports a holder with another's token
	Early                      // a minimum hold had not ended
	Stuck                      // a free name stayed reserved for nobody
	Overtaken                  // a later waiter was notified first
	Closed                     // a failed attempt left the name closed by its minimum hold
	violations
)

var violationNames = [...]string{"overlap", "token order", "stillborn", "leftover", "poisoned", "leak", "refused",
	"ghost", "revived", "misnamed", "early", "stuck", "overtaken", "closed"}

// String returns the violation's name.
func (v Violation) String() string { return violationNames[v] }

// Tally is the result of a number of schedules.
type Tally struct {
	Schedules, Events int64
	Acquired, Missed  int64 // attempts that won and that lost
	Renewed, Lost     int64 // renewals, and holds that were lost
	Writes            int64 // writes that reached the resource
	Stale             int64 // writes that the guard rejected, and a resource without one would accept
	Trailing          int64 // writes accepted although a shared acquisition came later
	Broken            [violations]int64
	Seeds             [violations]uint64 // the first schedule that showed each violation
}

// Add adds another tally. It takes over seeds that are missing.
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
