package pglock

import "sync"

var (
	// Any row of the key that is another session's calls for a second look: this one may see what was so
	// before the lock was free.
	stmtTry = &statement{"try", `SELECT CASE WHEN pg_try_advisory_lock($1::bigint) THEN nextval('fencelock.token') END,
	pg_sequence_last_value('fencelock.change'), EXISTS (SELECT FROM fencelock.holder WHERE key = $1::bigint AND session <> $2::integer)`}
	// Quick is try without the look at the table, which costs more than the lock.
	stmtQuick = &statement{"quick", `SELECT CASE WHEN pg_try_advisory_lock($1::bigint) THEN nextval('fencelock.token') END,
	pg_sequence_last_value('fencelock.change')`}
)

// clean remembers for which keys the table of holders had no row when the session
// held them, so that a lock that is taken again and again for moments costs no look
// at the table.
//
// Whoever adds rows of a key has the key locked, and counts fencelock.change up
// before. So while the number is what it was when the session held the key, there
// is still none.
type clean struct {
	mu     sync.Mutex // guards all below
	change int64      // the number that keys are clean at
	calm   int        // for how many answers it has not changed
	keys   map[int64]struct{}
}

const (
	calmEnough = 8    // a number that changes all the time makes quick ones cost a round trip more
	cleanMost  = 1024 // keys
)

// quick reports whether a key may be tried without a look at the table. The answer
// holds only if it comes with the number that is returned.
func (c *clean) quick(key int64) (change int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok = c.keys[key]
	return c.change, ok && c.calm >= calmEnough
}

// learn notes what an answer says about a key that was granted: the number, and
// whether there are rows.
func (c *clean) learn(key, change int64, rows bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calm++; change != c.change || len(c.keys) == cleanMost {
		clear(c.keys)
	}
	if change != c.change {
		c.change, c.calm = change, 0
	}
	if rows {
		delete(c.keys, key)
		return
	}
	if c.keys == nil {
		c.keys = map[int64]struct{}{}
	}
	c.keys[key] = struct{}{}
}
