package sim

import (
	"strconv"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/check"
)

// Journal is the history of a schedule, for the judges of package check. Its
// times are those of the simulation. A nil Journal notes nothing.
type Journal struct {
	Grants []check.Grant
	Ops    []check.Op // on the lock
	Writes []check.Op // to the guarded resource

	open [8]mark // what clients are at
}

// mark is a client's call, or its hold, that has not ended.
type mark struct{ called, grant int }

const lockName = "lock"

// calls notes that a client tries to get the lock.
func (j *Journal) calls(c *client) {
	if j == nil {
		return
	}
	j.open[c.id].called = len(j.Ops)
	now := time.Duration(c.world.now)
	j.Ops = append(j.Ops, check.Op{Client: int(c.id), Name: lockName, Kind: check.Acquire, Call: now, Return: now, Unknown: true})
}

// answered notes whether it did.
func (j *Journal) answered(c *client, won bool) {
	if j == nil {
		return
	}
	o := &j.Ops[j.open[c.id].called]
	o.Return, o.Unknown, o.OK = time.Duration(c.world.now), false, won
	if !won {
		return
	}
	o.Token = c.token
	j.open[c.id].grant = len(j.Grants)
	j.Grants = append(j.Grants, check.Grant{Name: lockName, Holder: strconv.Itoa(int(c.id)), Shared: c.request.shared,
		Token: c.token, Called: o.Call, Returned: o.Return})
}

// ends notes that a client does not believe in its lock any more, since now or
// since its deadline.
func (j *Journal) ends(c *client) {
	if j == nil {
		return
	}
	now := time.Duration(c.world.now)
	until := now
	if left := int64(c.hold.Left(c.instant())); left < 0 {
		until += time.Duration(left - left/1000*c.rate/1000)
	}
	j.Grants[j.open[c.id].grant].Until = until
	j.Ops[j.open[c.id].called].Until = until
	j.Ops = append(j.Ops, check.Op{Client: int(c.id), Name: lockName, Kind: check.Release, OK: true, Token: c.token,
		Call: until, Return: now})
}

// wrote notes what became of a write.
func (j *Journal) wrote(e *event, ok bool) {
	if j == nil {
		return
	}
	at := time.Duration(e.at)
	j.Writes = append(j.Writes, check.Op{Client: int(e.client), Name: lockName, Kind: check.Write, OK: ok,
		Token: e.token, Floor: e.floor, Call: at, Return: at})
}

// reset forgets the last schedule.
func (j *Journal) reset() {
	if j != nil {
		j.Grants, j.Ops, j.Writes = j.Grants[:0], j.Ops[:0], j.Writes[:0]
	}
}
