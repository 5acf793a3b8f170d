package sim

import (
	"strconv"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/check"
)

// Journal is the history of a schedule, for the judges of package check. Its
// times are those of the simulation.
type Journal struct {
	Grants []check.Grant
	Ops    []check.Op // on the lock
	Writes []check.Op // to the guarded resource

	open [8]mark // what clients are at
}

// mark is a client's call, or its hold, that has not ended.
type mark struct{ called, grant int }

const lockName = "lock"

// called notes that a client tries to get the lock.
func (w *World) called(c *client) {
	j := w.Journal
	j.open[c.id].called = len(j.Ops)
	j.Ops = append(j.Ops, check.Op{Client: int(c.id), Name: lockName, Kind: check.Acquire, Call: w.time(), Return: w.time(), Unknown: true})
}

// refused notes that it did not.
func (w *World) refused(c *client) { w.answered(c).Unknown = false }

func (w *World) answered(c *client) *check.Op {
	o := &w.Journal.Ops[w.Journal.open[c.id].called]
	o.Return = w.time()
	return o
}

// returned notes that it did.
func (w *World) returned(c *client) {
	o, j := w.answered(c), w.Journal
	o.OK, o.Unknown, o.Token = true, false, c.token
	j.open[c.id].grant = len(j.Grants)
	j.Grants = append(j.Grants, check.Grant{Name: lockName, Holder: strconv.Itoa(int(c.id)), Shared: c.request.shared,
		Token: c.token, Called: o.Call, Returned: o.Return})
}

// ends notes that a client does not believe in its lock any more, since now or
// since its deadline.
func (w *World) ends(c *client) {
	j, until := w.Journal, w.time()
	if left := int64(c.hold.Left(w.instant(c))); left < 0 {
		until += time.Duration(left - left/1000*c.rate/1000)
	}
	j.Grants[j.open[c.id].grant].Until = until
	j.Ops[j.open[c.id].called].Until = until
	j.Ops = append(j.Ops, check.Op{Client: int(c.id), Name: lockName, Kind: check.Release, OK: true, Token: c.token,
		Call: until, Return: w.time()})
}

// wrote notes what became of a write.
func (w *World) wrote(e *event, ok bool) {
	w.Journal.Writes = append(w.Journal.Writes, check.Op{Client: int(e.client), Name: lockName, Kind: check.Write, OK: ok,
		Token: e.token, Floor: e.floor, Call: w.time(), Return: w.time()})
}

// begin forgets the last schedule.
func (j *Journal) begin() { j.Grants, j.Ops, j.Writes = j.Grants[:0], j.Ops[:0], j.Writes[:0] }

func (w *World) time() time.Duration { return time.Duration(w.now) }
