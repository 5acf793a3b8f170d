package pglock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var (
	stmtShare = &statement{"share", `SELECT verdict, tok, low, wait, lim
FROM fencelock.share($1::bigint, $2::boolean, $3::integer, $4::bigint, CAST($5::text AS jsonb))`}
	stmtProbe  = &statement{"probe", `SELECT CASE WHEN pg_try_advisory_lock_shared($1::bigint) THEN pg_advisory_unlock_shared($1::bigint) END`}
	stmtNotify = &statement{"notify", `SELECT pg_notify('fencelock', $1::text)`}
)

// share takes the key together with others, on the session of uncontended locks.
//
// The server grants a shared lock again to a session that has it, past everybody
// in its queue. So a second holder of this process asks first whether a stranger
// would be let in: the engine's own session is one.
func (a *attempt) share(ctx context.Context, s *session) (driver.Grant, error) {
	if s.has(a.key) {
		rows, err := a.ask(ctx, stmtProbe, a.key)
		if err != nil {
			return driver.Grant{}, err
		}
		if rows[0][0] == nil {
			return driver.Grant{}, errHeld
		}
	}
	c := a.sendShare(s, false)
	rows, err := c.wait(ctx)
	if err != nil && !c.answered() {
		a.detach(func() {
			rows, err := c.wait(context.Background())
			a.unshare(s, rows, err)
		})
		return driver.Grant{}, err
	}
	if err = a.verdict(c); err == nil {
		err = a.stamp(s)
	}
	var g driver.Grant
	if err == nil {
		g, err = a.grantShared(s, c, false)
	}
	if err != nil {
		a.unshare(s, rows, c.err)
	}
	return g, err
}

func (a *attempt) sendShare(s *session, have bool) *call {
	return s.send(stmtShare, a.key, have, s.id, s.epoch, object(a.sharer()))
}

// sharer is what the server writes down about a shared holder.
func (a *attempt) sharer() map[string]any {
	return map[string]any{
		"owner": a.owner, "name": a.req.Name, "seats": a.req.Limit, "weight": a.req.Units(), "ttl": a.req.TTL.Milliseconds(),
		"host": a.req.Host, "pid": a.req.PID, "note": a.req.Note}
}

// unshare undoes what share did on a session with other locks.
func (a *attempt) unshare(s *session, rows []row, err error) {
	switch {
	case err != nil:
		// The lock may be there, and so may an older one of the same key, which
		// must stay. Whatever is left goes with the session.
		s.distrust(err)
	case rows[0].text(0) == "ok":
		_, _ = s.run(context.Background(), stmtForget, a.owner, a.key) // as below
		_ = s.unlock(a.key, driver.Shared)                             // a session that cannot is not used again
	}
}

// verdict reads the answer to a share: nil if it was granted.
func (a *attempt) verdict(c *call) error {
	if c.err != nil {
		return c.err
	}
	switch r := c.rows[0]; r.text(0) {
	case "ok":
		return nil
	case "limit":
		return a.otherLimit(r.int(4))
	default:
		return errHeld
	}
}

func (a *attempt) otherLimit(limit int64) error {
	return driver.LimitError(a.req.Name, int(limit), a.req.Limit)
}

// grantShared makes a granted share a hold, which the table has already.
func (a *attempt) grantShared(s *session, c *call, alone bool) (driver.Grant, error) {
	r := c.rows[0]
	return a.grant(&hold{session: s, alone: alone, token: r.int(1), noted: written}, r.int(2), c.sent)
}

// queueShared waits for the shared lock, and with a limit for a seat as well. The
// first in the queue for seats waits with the shared lock in hand, so that an
// exclusive request that came later stays behind it.
func (a *attempt) queueShared(ctx context.Context, s *session) (driver.Grant, error) {
	if a.req.Limit > 0 {
		if err := a.block(ctx, s, s.send(stmtLockQueue, a.key)); err != nil {
			return driver.Grant{}, err
		}
	}
	if err := a.block(ctx, s, s.send(stmtLockShared, a.key)); err != nil {
		return driver.Grant{}, err
	}
	c, err := a.seat(ctx, s)
	if err == nil && a.req.Limit > 0 {
		_, err = s.run(context.Background(), stmtUnlockQueue, a.key)
	}
	if err == nil {
		err = a.stamp(s)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return a.grantShared(s, c, true)
}

// seat asks for a place beside the others until there is one, since it may be
// closed and seats may be taken.
func (a *attempt) seat(ctx context.Context, s *session) (*call, error) {
	bell, hangUp := a.listen(a.key)
	defer hangUp()
	for {
		c := a.sendShare(s, true)
		if _, err := c.wait(ctx); err != nil {
			return nil, err
		}
		if err := a.verdict(c); !errors.Is(err, errHeld) {
			return c, err
		}
		if !a.told {
			a.announce(ctx, s, nil)
		}
		d := 50*time.Millisecond + jitter(100*time.Millisecond)
		if c.rows[0].text(0) == "closed" {
			d = min(c.rows[0].millis(3), s.ttl/3)
		}
		if err := sleep(ctx, d, bell, nil); err != nil {
			return nil, err
		}
	}
}

// freed is the notification that a seat of a key is free.
func freed(key int64) string { return "free " + strconv.FormatInt(key, 10) }

// listen returns a channel that is told of free seats, until hangUp. Only the
// request whose turn it is listens to a key.
func (e *Engine) listen(key int64) (bell <-chan struct{}, hangUp func()) {
	b := make(chan struct{}, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bells[key] = b
	return b, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.bells, key)
	}
}

// ring tells who waits for a seat of key.
func (e *Engine) ring(key int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case e.bells[key] <- struct{}{}:
	default: // nobody, or told already
	}
}
