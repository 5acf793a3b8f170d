package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/jackc/pgx/v5/pgconn"
)

// errCrowded is why a request has no connection to wait on.
var errCrowded = errors.New("all connections for waiters are in use; raise MaxWaiters")

var (
	// The server computes the alternatives of the first column in their order, and the other columns after it. A
	// request that is armed and finds the key marked has its token already; see fencelock.ahead.
	stmtLock = &statement{"lock", `SELECT CASE WHEN pg_advisory_lock($1::bigint) IS NULL THEN NULL
	WHEN pg_try_advisory_xact_lock_shared(1717923433, $3::integer) OR pg_try_advisory_xact_lock_shared(1717923432, $4::integer)
	THEN fencelock.late($1::bigint, $2::integer)
	ELSE 0 END, statement_timestamp(), clock_timestamp()`}
	stmtLockShared = &statement{"lock_shared", `SELECT pg_advisory_lock_shared($1::bigint)`}
	stmtLockQueue  = &statement{"lock_queue", `SELECT pg_advisory_lock(1717923429, hashint8($1::bigint))`}
)

// blocks reports whether a statement may wait for other sessions.
func (s *statement) blocks() bool { return s == stmtLock || s == stmtLockShared || s == stmtLockQueue }

// eager reports whether the answer of a statement is wanted before its transaction
// ends, and in binary form: the next holder need not wait while the server tidies
// up. What the statement did does not depend on how its transaction ends.
func (s *statement) eager() bool { return s == stmtLock }

// queue waits for the key on a connection of its own, which becomes the session
// of the hold. It is the only request of this process that does so for this key.
func (a *attempt) queue(ctx context.Context) (driver.Grant, error) {
	s, err := a.waiter(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	if err := s.quarantine(time.Now()); err != nil {
		a.park(s)
		return driver.Grant{}, err
	}
	a.turn(a.key, func(t *turn) { t.block() })
	var g driver.Grant
	if a.req.Mode == driver.Shared {
		g, err = a.queueShared(ctx, s)
	} else {
		g, err = a.queueExclusive(ctx, s)
	}
	if err != nil && !a.detached {
		a.discard(s)
	}
	return g, err
}

// queueExclusive waits for the exclusive lock.
func (a *attempt) queueExclusive(ctx context.Context, s *session) (driver.Grant, error) {
	early := &arm{attempt: a, session: s, number: rand.Int32()}
	c := s.send(stmtLock, a.key, s.id, early.number, markOfKey(a.key))
	stop := early.soon()
	err := a.block(ctx, s, c)
	stop()
	if err != nil {
		return driver.Grant{}, err
	}
	number := c.rows[0].binary(0)
	sent, fresh := freshGrant(c, time.Now())
	if !fresh || time.Since(sent) > s.ttl/2 || number < 0 {
		sent, err = a.confirm(ctx, s)
	}
	if err == nil && number == 0 {
		number, err = early.token()
	}
	token := s.epoch<<40 + max(number, -number)
	if err == nil {
		err = a.stamp(s)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return a.grant(&hold{session: s, alone: true, token: token}, token, sent)
}

// freshLimit is how old a grant may be that is believed without asking again.
const freshLimit = 100 * time.Millisecond

// freshGrant reckons from when the lease of a grant runs that ended a wait: the
// waiter sent its request, and the server then waited for so long by its own
// clock, whose rate may be one percent off. A grant that is older than a moment by
// this may have lain unread while its waiter was frozen and its session ended, and
// one from the future is of a clock that was set; neither is fresh. A clock that is
// set forward during the wait is not seen if the waiter is then frozen for just as
// long; the end of the session lies behind the grant then, and is read next.
func freshGrant(c *call, now time.Time) (sent time.Time, fresh bool) {
	waited := time.Duration(c.rows[0].binary(2)-c.rows[0].binary(1)) * time.Microsecond
	sent = c.sent.Add(max(0, waited-waited/100))
	age := now.Sub(sent)
	return sent, waited >= 0 && !c.sent.Add(waited).After(now) && age < freshLimit+waited/100
}

// confirm makes sure that the session lives after a wait, since the grant may
// have lain unread while it ended, and stays while the key is closed. The lease
// counts from the time it returns.
func (a *attempt) confirm(ctx context.Context, s *session) (time.Time, error) {
	for {
		c := s.send(stmtClosed, a.key, s.id)
		rows, err := c.wait(ctx)
		if err != nil || rows[0].int(0) == 0 {
			return c.sent, err
		}
		if !a.told {
			a.announce(ctx, nil, nil)
		}
		if err := sleep(ctx, min(rows[0].millis(0), s.ttl/3), nil, nil); err != nil {
			return c.sent, err
		}
	}
}

// block waits for a statement that waits. When ctx ends it takes the statement back.
func (a *attempt) block(ctx context.Context, s *session, c *call) error {
	a.announce(ctx, s, c)
	_, err := c.wait(ctx)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == deadlockDetected {
		return &refusal{err} // waiting once more would be part of it again
	}
	if err == nil || c.answered() {
		return err
	}
	s.cancel(c)
	if !c.answered() { // the server does not even answer the cancellation
		a.detach(func() { a.discard(s) })
	}
	return err
}

// cancelLimit is how long a wait that was given up may take to leave the server.
const cancelLimit = time.Second

// cancel takes back a statement that waits, and returns when the server has
// answered it, or does not.
func (s *session) cancel(c *call) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelLimit)
	defer cancel()
	for !c.answered() && ctx.Err() == nil {
		_ = s.server.CancelRequest(ctx) // it may come before the statement, or get lost
		c.over(ctx, cancelLimit/5)
	}
}

// waiter returns a connection to wait on: an idle one of the right TTL or a new
// one.
func (a *attempt) waiter(ctx context.Context) (*session, error) {
	select {
	case a.seats <- struct{}{}:
	default:
		return nil, errCrowded
	}
	if s := a.unpark(a.req.TTL); s != nil {
		return s, nil
	}
	s, err := a.dial(ctx, a.req.TTL)
	if err != nil {
		<-a.seats
		return nil, err
	}
	go a.registry.sweep() // ends when the server has answered or has not in time
	return s, nil
}

// unpark takes an idle connection. One of another TTL is closed, so that there
// are never more than the seats allow.
func (e *Engine) unpark(ttl time.Duration) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	other := -1
	for i := len(e.idle) - 1; i >= 0; i-- {
		s := e.idle[i]
		switch {
		case s.over() != nil:
			e.idle = slices.Delete(e.idle, i, i+1)
			other-- // those behind it moved up
		case s.ttl == ttl:
			e.idle = slices.Delete(e.idle, i, i+1)
			return s
		default:
			other = i
		}
	}
	if other >= 0 && len(e.idle)+len(e.seats) > cap(e.seats) {
		go e.idle[other].retire(errSpare) // ends when the goodbye is sent
		e.idle = slices.Delete(e.idle, other, other+1)
	}
	return nil
}

var errSpare = errors.New("closed, since another one was needed more")

// park keeps a waiter's connection that holds nothing for the next one. The
// server ends it when it has been idle for its TTL.
func (e *Engine) park(s *session) {
	e.mu.Lock()
	keep := !s.doubt && s.over() == nil && !e.done
	if keep {
		e.idle = append(e.idle, s)
	}
	e.mu.Unlock()
	if !keep {
		s.close(errSpare)
	}
	<-e.seats
}

// discard frees whatever a waiter's connection has and destroys it: after an
// error or a cancelled statement nobody knows what that is.
func (a *attempt) discard(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelLimit)
	defer cancel()
	if s.over() == nil {
		s.send(stmtForgetAll, s.id)
		s.send(stmtLeave, s.id) // rows of a session that is gone are ignored in the end
		_, err := s.run(ctx, stmtUnlockAll)
		if err != nil && ctx.Err() == nil { // a cancel request that came late hit it
			_, err = s.run(ctx, stmtUnlockAll)
		}
		s.close(fmt.Errorf("a wait was given up: %w", errors.Join(err, errSpare)))
	}
	<-a.seats
}

func jitter(d time.Duration) time.Duration { return rand.N(d) }
