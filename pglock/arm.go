package pglock

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

var (
	stmtAhead  = &statement{"ahead", `SELECT fencelock.ahead($1::bigint, $2::integer, $3::integer, $4::integer)`}
	stmtDisarm = &statement{"disarm", `SELECT pg_advisory_unlock(1717923433, $1::integer)`}
)

// arm is what is done for a request while it waits in the server, so that its grant
// costs less: its token is minted, and whom it comes after is looked up.
type arm struct {
	*attempt
	session *session
	number  int32                   // the wait is armed while an own session of the engine has the advisory lock (1717923433, number)
	early   atomic.Int64            // the token's part below the epoch; 0 if there is none yet
	armed   atomic.Pointer[session] // has the advisory lock, and gives it back once
	over    atomic.Bool             // the request waits no more
}

// armDelay is how long a request waits before it is worth arming: a holder is
// written down by then.
const armDelay = 2 * noteDelay

// disarmDelay keeps the end of it out of the way of what the holder does first.
const disarmDelay = 100 * time.Millisecond

// soon arms the request if it still waits after a moment. The caller calls stop after
// the wait.
func (m *arm) soon() (stop func()) {
	t := time.AfterFunc(armDelay, m.run)
	return func() {
		t.Stop()
		m.over.Store(true)
		if m.armed.Load() != nil {
			time.AfterFunc(disarmDelay, m.disarm) // ends when it is sent
		}
	}
}

// run tries until the request is armed or waits no more: it may have others before it
// yet. It ends some time after the wait, which is as long again at most; to be woken
// by the grant would delay it.
func (m *arm) run() {
	for pause := armDelay; !m.over.Load(); pause *= 2 {
		own, err := m.ownSession(context.Background()) // ends in dialLimit
		if err != nil {
			return // the grant then costs what it costs
		}
		rows, err := own.run(context.Background(), stmtAhead, m.key, markOfKey(m.key), m.number, m.session.backend)
		if err == nil && rows[0].int(0) != 0 {
			m.early.Store(rows[0].int(0))
			m.armed.Store(own)
			if m.over.Load() {
				m.disarm()
			}
			return
		}
		time.Sleep(pause)
	}
}

// disarm gives the advisory lock back. When does not matter, and it ends with its
// session at the latest.
func (m *arm) disarm() {
	if own := m.armed.Swap(nil); own != nil {
		own.send(stmtDisarm, m.number)
	}
}

// token returns the number that was minted for a request which was granted as armed,
// or a new one, as good as that, if the answer with it is still on its way.
func (m *arm) token() (int64, error) {
	if n := m.early.Load(); n != 0 {
		return n, nil
	}
	rows, err := m.session.run(context.Background(), stmtMint)
	if err != nil {
		return 0, err
	}
	return rows[0].int(0), nil
}

// markOfToken is the second number of the advisory lock that marks a token.
func markOfToken(token int64) int32 { return int32(token & math.MaxInt32) }

// markOfKey is the same of a key. Keys may be integers of an application, alike in
// their lower or their upper half; multiplied by the golden ratio they are spread.
func markOfKey(key int64) int32 { return int32(uint64(key) * 0x9e3779b97f4a7c15 >> 33) }
