package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/fencelock/fencelock/driver"
	"github.com/google/uuid"
)

// errHeld is how steps of an acquire say that somebody else is in the way.
var errHeld = errors.New("held")

// attempt is one request on its way to a grant.
type attempt struct {
	*Engine
	req      driver.Request
	key      int64
	owner    string
	ticket   *ticket
	detached bool              // a goroutine goes on for it, and gives up its turn
	listed   bool              // it has a row among the waiters
	told     bool              // whoever wants to know has heard that it waits
	held     *driver.HeldError // who was in the way when it began to wait
	trouble  error             // why the server could not be asked, the last time
}

var (
	stmtTidy = &statement{"tidy", `WITH m AS (DELETE FROM fencelock.minimum WHERE key = $1::bigint AND not_before < clock_timestamp())
DELETE FROM fencelock.holder WHERE key = $1::bigint AND until < clock_timestamp()`}
	stmtClosed = &statement{"closed", `SELECT fencelock.closed($1::bigint, $2::integer, true)`}
	stmtStamp  = &statement{"stamp", `WITH m AS (
	INSERT INTO fencelock.minimum AS m VALUES ($1::bigint, $2::text, clock_timestamp() + $3::bigint * interval '1 ms')
	ON CONFLICT (key) DO UPDATE SET name = excluded.name, not_before = greatest(m.not_before, excluded.not_before)
	RETURNING m)
SELECT fencelock.durable(), fencelock.twin(m) FROM m`}
)

// Acquire makes one acquisition; see [driver.Engine]. A wait ends early with
// driver.ErrUnavailable if the server found a deadlock ([ErrDeadlock]) or cannot
// be used at all.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	err := req.Check(e.Traits())
	if err == nil {
		err = checkLimit(req.Limit)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return driver.Grant{}, err
	}
	owner, err := uuid.NewV7()
	if err != nil {
		return driver.Grant{}, unavailable(err)
	}
	a := &attempt{Engine: e, req: req, key: keyOf(req.Name), owner: owner.String()}
	g, err := a.acquire(ctx)
	a.unlist(err == nil)
	if err == nil {
		return g, nil
	}
	return g, a.failed(ctx, err)
}

// failed puts an error into the words of package driver.
func (a *attempt) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, driver.ErrUnsupported):
		return err
	case ctx.Err() != nil && a.trouble != nil:
		return unavailable(fmt.Errorf("%w: %w", ctx.Err(), a.trouble))
	case ctx.Err() != nil && a.req.Wait:
		return driver.WaitError(a.facts(), ctx.Err())
	case errors.Is(err, errHeld):
		return a.facts()
	default:
		return unavailable(err)
	}
}

// acquire waits for the process's turn and asks until there is an answer.
func (a *attempt) acquire(ctx context.Context) (driver.Grant, error) {
	if err := a.enter(ctx); err != nil {
		return driver.Grant{}, err
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 10*time.Millisecond, time.Second
	for n := 1; ; n++ {
		g, err := a.once(ctx)
		if err == nil || a.detached {
			return g, err
		}
		d, again := a.retry(err, n, pause)
		a.remember(ctx, err)
		if again {
			err = sleep(ctx, d, nil, err)
		}
		if !again || ctx.Err() != nil {
			a.turn(a.key, func(t *turn) { t.quit(a.ticket) })
			return g, err
		}
	}
}

// remember keeps what went wrong, for the case that ctx ends before the next attempt,
// and tells who wants to know that the server grants nothing yet.
func (a *attempt) remember(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, errHeld) || errors.Is(err, errCrowded) {
		return
	}
	a.trouble = err
	q, ok := errors.AsType[*quarantined](err)
	if ok && !a.told && a.req.Wait && a.req.Waiting != nil {
		a.told = true
		a.req.Waiting(driver.WaitInfo{Held: &driver.HeldError{Name: a.req.Name, Until: q.until,
			Identity: driver.Identity{Note: "by nobody: " + err.Error()}}})
	}
}

// enough is how often a try is made before it says that the server is unavailable.
const enough = 4

// retry says whether, and after which pause, an attempt is worth another one.
func (a *attempt) retry(err error, n int, pause backoff.BackOff) (time.Duration, bool) {
	q, closed := errors.AsType[*quarantined](err)
	switch {
	case errors.Is(err, errHeld) || !passing(err):
		return 0, false
	case errors.Is(err, errCrowded):
		return 100*time.Millisecond + jitter(150*time.Millisecond), true
	case closed:
		return time.Until(q.until), a.req.Wait
	}
	return pause.NextBackOff(), a.req.Wait || n < enough
}

// enter waits until no other request of this process is before this one.
func (a *attempt) enter(ctx context.Context) error {
	a.ticket = &ticket{mode: a.req.Mode, try: !a.req.Wait, ready: make(chan struct{})}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.turn(a.key, func(t *turn) { t.join(a.ticket) })
	select {
	case <-a.ticket.ready:
	default:
		if a.req.Wait {
			a.announce(ctx, nil, nil)
		}
	}
	select {
	case <-a.ticket.ready:
	case <-ctx.Done():
		a.turn(a.key, func(t *turn) { t.quit(a.ticket) })
		return ctx.Err()
	}
	if a.ticket.refused {
		return errHeld
	}
	return nil
}

// once asks the server once, and waits there if the request wants to.
func (a *attempt) once(ctx context.Context) (driver.Grant, error) {
	s, err := a.lockSession(ctx, a.req.TTL, 1)
	if err != nil {
		if a.trouble == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && passing(err) {
			a.trouble = err // nobody is known to hold the name; an earlier one says more
		}
		return driver.Grant{}, err
	}
	if err := s.quarantine(time.Now()); err != nil {
		return driver.Grant{}, err
	}
	a.trouble = nil
	var g driver.Grant
	if a.req.Mode == driver.Shared {
		g, err = a.share(ctx, s)
	} else {
		g, err = a.grab(ctx, s)
	}
	if errors.Is(err, errHeld) && a.req.Wait {
		return a.queue(ctx)
	}
	return g, err
}

// detach lets undo go on with an unanswered statement, and keeps the turn until
// it is done: nobody in this process may touch the key before.
func (a *attempt) detach(undo func()) {
	a.detached = true
	go func() { // ends when the server has answered or the connection has ended
		undo()
		a.turn(a.key, func(t *turn) { t.quit(a.ticket) })
	}()
}

// grab takes a free key on the session of uncontended locks.
func (a *attempt) grab(ctx context.Context, s *session) (driver.Grant, error) {
	var c *call
	change, quick := s.clean.quick(a.key)
	if quick {
		c = s.send(stmtQuick, a.key)
	} else {
		c = s.send(stmtTry, a.key, s.id)
	}
	rows, err := c.wait(ctx)
	if err != nil && !c.answered() {
		a.detach(func() {
			if rows, err := c.wait(context.Background()); err != nil || rows[0][0] != nil {
				_ = s.unlock(a.key, driver.Exclusive) // a session that cannot is not used again
			}
		})
		return driver.Grant{}, err
	}
	switch {
	case err != nil:
		_ = s.unlock(a.key, driver.Exclusive) // a session that cannot is not used again
		return driver.Grant{}, err
	case rows[0][0] == nil:
		return driver.Grant{}, errHeld
	}
	token := s.epoch<<40 + rows[0].int(0)
	look := quick && rows[0].int(1) != change || !quick && rows[0].text(2) == "t"
	s.clean.learn(a.key, rows[0].int(1), look)
	if look || a.req.AtLeast > 0 {
		err = a.admit(s)
	}
	var g driver.Grant
	if err == nil {
		g, err = a.grant(&hold{session: s, token: token}, token, c.sent)
	}
	if err != nil {
		_ = s.unlock(a.key, driver.Exclusive) // a session that cannot is not used again
	}
	return g, err
}

// admit looks whether the key that the session has locked is closed, removes what
// is over, and stamps a minimum hold. It is short, and ends with the connection at
// the latest.
func (a *attempt) admit(s *session) error {
	rows, err := s.run(context.Background(), stmtClosed, a.key, s.id)
	if err != nil {
		return err
	}
	if rows[0].int(0) > 0 {
		return errHeld
	}
	s.send(stmtTidy, a.key) // what it does not remove is looked at once more
	return a.stamp(s)
}

// stamp writes down a minimum hold, if the request wants one.
func (a *attempt) stamp(s *session) error {
	if a.req.AtLeast == 0 {
		return nil
	}
	least := a.req.AtLeast + time.Millisecond - 1 // the server counts whole ones
	_, err := s.run(context.Background(), stmtStamp, a.key, a.req.Name, least)
	return err
}

// grant makes a locked key a hold.
func (a *attempt) grant(h *hold, floor int64, sent time.Time) (driver.Grant, error) {
	g := a.granted(h, floor, sent)
	if err := a.keep(h); err != nil {
		return driver.Grant{}, err
	}
	a.registry.note(h)
	return g, nil
}

// granted fills in a hold that is about to begin.
func (a *attempt) granted(h *hold, floor int64, sent time.Time) driver.Grant {
	now := time.Now()
	h.key, h.name, h.owner = a.key, a.req.Name, a.owner
	h.mode, h.seats, h.ttl = a.req.Mode, a.req.Limit, a.req.TTL
	h.least = a.req.AtLeast > 0
	h.since, h.until = now, now.Add(h.ttl)
	h.Identity, h.lost = a.req.Identity, a.req.Lost
	return driver.Grant{Owner: h.owner, Token: h.token, Floor: floor, Sent: sent, TTL: h.ttl}
}

// sleep waits for d, for wake or for ctx, and returns err, or ctx.Err() if ctx
// ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}, err error) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
