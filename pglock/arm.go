package pglock

import (
	"context"
	"time"
)

var (
	stmtArm    = &statement{"arm", `SELECT fencelock.arm($1::bigint, $2::integer, $3::integer)`}
	stmtDisarm = &statement{"disarm", `SELECT pg_advisory_unlock(1717923433, $1::integer)`}
)

// armDelay is how long a request waits before it is worth arming: a holder is
// written down by then.
const armDelay = 2 * noteDelay

// armedDelay is how often one that is armed looks whether the wait is over.
const armedDelay = 100 * time.Millisecond

// armSoon arms a request that waits with call c on session s, if it still does
// after a moment, so that its grant costs less. The caller calls stop after the
// wait.
func (a *attempt) armSoon(s *session, c *call, n int32) (stop func() bool) {
	return time.AfterFunc(armDelay, func() { a.arm(s, c, n) }).Stop
}

// arm tries until the request is armed or no longer waits: it may have others
// before it yet. It ends some time after the wait, which is as long again at most.
func (a *attempt) arm(s *session, c *call, n int32) {
	for pause := armDelay; !c.answered(); pause *= 2 {
		own, err := a.ownSession(context.Background()) // ends in dialLimit
		if err != nil {
			return // the grant then costs what it costs
		}
		rows, err := own.run(context.Background(), stmtArm, a.key, n, s.backend)
		if err == nil && rows[0].text(0) == "t" {
			for !c.answered() {
				time.Sleep(armedDelay) // to be woken by the grant would delay it
			}
			own.send(stmtDisarm, n) // when does not matter, and at the latest it ends with the session
			return
		}
		time.Sleep(pause)
	}
}
