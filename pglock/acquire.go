package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/identity"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/google/uuid"
)

// acquirer acquires locks for the requests of this process.
type acquirer struct {
	own      *ownSession
	locks    *lockSessions   // for keys that are free
	waiters  *waiterPool     // for keys that are waited for
	queues   *localQueues    // one request per key talks to the server at a time
	holds    *holdings       // receives the granted locks
	quota    *lockQuota      // space in the server's lock table
	sleepers *sleepers       // wakes requests that wait in the server
	attempts attempts        // in flight
	maxTTL   time.Duration   // Config.MaxTTL
	closed   context.Context // of the dialer
	rowLook  time.Duration   // the constant, except in tests
}

// attempt is one request.
type attempt struct {
	*acquirer
	req      driver.Request
	futile   bool // it waited for longLimit for a connection, in vain
	key      int64
	owner    string
	spent    []string      // the last few owners of attempts whose connection ended
	local    *localRequest // in this process's queue for the key
	ticket   int64         // in the server's queue, on the session for uncontended locks; 0 means none
	unqueue  func()        // returns the ticket; nil if there is none
	counted  bool          // it counts in quota
	detached bool          // a goroutine finishes it and then gives up its place
	listed   bool          // it has a row in fencelock.queued
	informed bool          // OnWait was called
	waited   driver.Waited
}

// errHeld is returned inside an acquire if another request holds the lock or is ahead.
var errHeld = errors.New("held")

// Acquire makes one acquisition; see [Engine.Acquire].
func (acq *acquirer) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	a, err := acq.attempt(req)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return driver.Grant{}, err
	}
	limited, stop := ctx, func() {}
	if !a.req.Wait {
		limited, stop = a.own.dialer.patience.limit(ctx, a.own.dialer.cfg.Timeout)
	}
	defer stop()
	g, err := a.acquire(limited)
	if err == nil {
		return g, nil
	}
	return g, a.failed(ctx, limited, unanswered(ctx, limited, err))
}

// failed converts an error to one of package driver. A request that does not wait asks for the holder until
// limited ends.
func (a *attempt) failed(ctx, limited context.Context, err error) error {
	if errors.Is(err, errHeld) {
		asked := limited
		if a.req.Wait {
			asked = context.WithoutCancel(ctx)
		}
		held, err := a.whoIsIn(asked)
		err = unanswered(ctx, limited, err)
		nobody := held.Owner == "" && held.PID == 0 && held.Until.IsZero()
		if len(a.spent) > 0 && (err != nil || nobody || slices.Contains(a.spent, held.Owner)) {
			return a.waited.Ended(ctx, failure(errSilent)) // held by an earlier attempt of its own, which may have been released meanwhile
		}
		if err == nil {
			if own, _ := a.own.get(limited); own != nil {
				err = own.quarantine(time.Now())
			}
		}
		if err != nil && a.local.refused { // in this process only: the server has not confirmed that the name is held
			return a.waited.Ended(ctx, failure(err))
		}
		return a.waited.Ended(ctx, held)
	}
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		if _, why := a.waited.Last(); why != nil && errors.Is(err, errSilent) {
			err = why
		}
		return a.waited.Ended(ctx, failure(err))
	}
	if held, _ := a.waited.Last(); held != nil {
		if held, err := a.whoIsIn(context.WithoutCancel(ctx)); err == nil {
			a.waited.Held(held)
		}
	}
	return a.waited.Ended(ctx, nil)
}

// attempt checks a request and prepares it.
func (acq *acquirer) attempt(req driver.Request) (*attempt, error) {
	if err := req.Check(acq.traits()); err != nil {
		return nil, err
	}
	if err := checkLimit(req.Limit); err != nil {
		return nil, err
	}
	req.Host, req.Note = plain(identity.HostText(req.Identity)), plain(req.Note)
	return &attempt{acquirer: acq, req: req, key: keyOf(req.Name), owner: newOwner()}, nil
}

func newOwner() string { return uuid.Must(uuid.NewV7()).String() } // never fails

// plain returns s without the bytes that the server cannot store.
func plain(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", `\x00`)
}

// acquire waits until this request may talk to the server and repeats attempts until there is an
// answer.
func (a *attempt) acquire(ctx context.Context) (g driver.Grant, err error) {
	done := false
	defer func() { // also when OnWait panics
		if !done && !a.detached {
			a.giveUp()
		}
		if a.listed {
			a.unlist(done)
		}
	}()
	if err := a.enter(ctx); err != nil {
		return g, err
	}
	pause := retry.NewBackoff(10*time.Millisecond, time.Second)
	for n := 1; ; n++ {
		g, err = a.once(ctx)
		if err == nil {
			done = true
			return g, nil
		}
		if a.detached || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return g, err
		}
		d, again := a.again(err, n, pause)
		if !again {
			return g, err
		}
		a.remember(ctx, err)
		a.replaceOwner(err)
		if !retry.Sleep(ctx, d) {
			return g, ctx.Err()
		}
	}
}

// maxSpent is how many of its own earlier owners a request keeps.
const maxSpent = 8

// replaceOwner gives the next attempt a new owner if the connection of the last one ended or stopped
// answering. That attempt may have been granted, or may still be. Its row belongs to no holder, so
// the next attempt does not wait for it.
func (a *attempt) replaceOwner(err error) {
	if !errors.Is(err, pipe.ErrEnded) && !errors.Is(err, errSilent) {
		return
	}
	if a.listed {
		a.unlist(true)
		a.listed = false
	}
	a.spent = append(a.spent, a.owner)
	a.spent = a.spent[max(0, len(a.spent)-maxSpent):]
	a.owner = newOwner()
}

// gone returns the owners whose rows the request need not wait for, separated by spaces.
func (a *attempt) gone() string {
	return strings.Join(a.spent, " ")
}

// giveUp takes the request out of this process's queue and returns everything it has taken.
func (a *attempt) giveUp() {
	if a.unqueue != nil {
		a.unqueue()
	}
	if a.counted {
		a.quota.leave()
	}
	if a.local != nil {
		a.queues.change(a.key, func(t *localQueue) { t.quit(a.local) })
	}
}

// A request without Wait makes this many attempts before it reports ErrUnavailable. It makes no further
// one if an attempt got no connection within longLimit: on a server that does not answer, each attempt
// would take dialLimit.
const (
	enough    = 4
	longLimit = dialLimit / 2
)

// again reports whether to make another attempt, and after which pause.
func (a *attempt) again(err error, n int, pause *retry.Backoff) (time.Duration, bool) {
	q, closed := errors.AsType[*quarantined](err)
	switch {
	case errors.Is(err, errHeld) || !passing(err):
		return 0, false
	case errors.Is(err, errBusy):
		return retry.Jitter(2 * time.Millisecond), true
	case closed:
		return time.Until(q.until), a.req.Wait
	}
	return pause.Next(), a.req.Wait || n < enough && !a.futile
}

// errBusy makes a request retry immediately: another request is joining the shared holders.
var errBusy = errors.New("another request is joining the shared holders")

// remember keeps an error in case ctx ends before the next attempt, and reports a quarantine
// through OnWait. While a request waits here, non-blocking attempts of this process are refused.
func (a *attempt) remember(ctx context.Context, err error) {
	if errors.Is(err, errBusy) {
		return
	}
	a.waited.Unavailable(ctx, failure(err))
	if a.req.Wait {
		a.queues.change(a.key, func(t *localQueue) { t.block() })
	}
	if _, ok := errors.AsType[*quarantined](err); ok && !a.informed && a.req.Wait && a.req.OnWait != nil {
		a.informed = true
		a.req.OnWait(driver.WaitInfo{Trouble: err})
	}
}

// once makes one attempt, and waits in the server if the request has Wait.
func (a *attempt) once(ctx context.Context) (driver.Grant, error) {
	_, lock := a.locks.pick(a.req.TTL)
	asked := time.Now()
	s, err := lock.get(ctx)
	if err != nil {
		a.futile = time.Since(asked) >= longLimit
		return driver.Grant{}, err
	}
	if err := s.quarantine(time.Now()); err != nil {
		return driver.Grant{}, err
	}
	if !a.counted {
		if err := a.quota.enter(ctx, s); err != nil {
			return driver.Grant{}, err
		}
		a.counted = true
	}
	g, err := a.try(ctx, s)
	if errors.Is(err, errHeld) && a.req.Wait {
		a.waited.Held(&driver.HeldError{Name: a.req.Name})
		g, err = a.queueUp(ctx, s)
	}
	s.outdated(err)
	return g, err
}

// try takes a free key on the session for uncontended locks.
func (a *attempt) try(ctx context.Context, s *session) (driver.Grant, error) {
	if !a.attempts.enter() {
		return driver.Grant{}, errEngineClosed
	}
	c, have, err := a.send(ctx, s)
	if err != nil {
		a.attempts.leave()
		return driver.Grant{}, err
	}
	if _, err := c.ResultUnlessSilent(ctx); !c.Answered() {
		a.abandon(s, c, have, errors.Is(err, errSilent))
		return driver.Grant{}, err
	}
	defer a.attempts.leave()
	r, err := c.Result(context.Background()) // it is answered, perhaps at the moment ctx ended
	g, failed := a.handleVerdict(ctx, s, r, err, c.Sent())
	if failed != nil {
		a.undo(s, r, err, have)
	} else if a.req.Mode == driver.Shared && s.shared.quit(a.key) {
		_ = s.unlock(a.key, a.req.Mode) // another hold ended meanwhile and left the lock to this request
	}
	return g, failed
}

// abandon undoes an unanswered attempt in the background. If the session is silent, the request (or
// the next one of this process) need not wait for that: no request for the key uses a silent
// session again, and the server can tell other sessions apart.
func (a *attempt) abandon(s *session, c *pipe.Call, have, silent bool) {
	try := *a // keeps its owner
	undo := func() {
		defer try.attempts.leave()
		r, err := c.Result(context.Background())
		try.undo(s, r, err, have)
	}
	if silent {
		go undo() // ends when the server has answered or the connection has ended
		return
	}
	a.detach(func() {
		if _, err := c.ResultUnlessSilent(context.Background()); !c.Answered() && errors.Is(err, errSilent) {
			go undo() // as above
			return
		}
		undo()
	})
}

// send sends the request, and reports whether the session shares the key already. A shared request
// counts as a holder from now on, so that a release meanwhile does not unlock the session's lock.
func (a *attempt) send(ctx context.Context, s *session) (c *pipe.Call, have bool, err error) {
	if a.req.Mode == driver.Shared {
		if have, err = s.shared.ask(ctx, a.key); err != nil {
			return nil, false, err
		}
	}
	args := a.lockArgs(s, a.ticket, a.req.TTL)
	if a.req.Mode == driver.Exclusive {
		return s.Call(s.fn["take"], args...), false, nil
	}
	return s.Call(s.fn["share"], append(args, int32(a.req.Limit), int32(a.req.Units()), have, false)...), have, nil
}

// lockArgs returns the arguments common to all requests; see sql/lock.sql.
func (a *attempt) lockArgs(s *session, ticket int64, ttl time.Duration) []any {
	return []any{a.key, a.owner, a.req.Name, ttl, s.id, a.req.Host, int32(a.req.PID), a.req.Note,
		ticket, time.Now().UnixMicro(), a.gone()}
}

// undo releases what the server may have granted to a failed request.
func (a *attempt) undo(s *session, r pipe.Row, err error, have bool) {
	if err == nil && r.Text(0) == "ok" && a.req.MinHold > 0 {
		a.withdrawMinHold()
	}
	alone := true // no other holder of this session needs the lock
	if a.req.Mode == driver.Shared && !s.waiter {
		alone = s.shared.quit(a.key)
	}
	switch {
	case err == nil && r.Text(0) == "ok" && a.req.Mode == driver.Shared:
		r, err := s.Call(s.fn["leave"], a.key, a.owner, alone).Result(context.Background())
		if err == nil && r.Text(0) == "t" {
			return
		}
		if alone {
			_ = s.unlock(a.key, a.req.Mode)
		}
		go a.own.forget(s, a.key, a.owner) // ends when the row is gone, or with the session
	case alone && (err != nil || have): // the rows were rolled back, but the advisory lock may remain
		_ = s.unlock(a.key, a.req.Mode) // if it fails, the session has ended
	case err == nil && r.Text(0) == "ok":
		if r, err := s.Call(s.fn["free"], a.key, a.owner).Result(context.Background()); err != nil || r.Text(0) != "t" {
			_ = s.unlock(a.key, a.req.Mode)
			go a.own.forget(s, a.key, a.owner) // ends when the row is gone, or with the session
		}
	}
}

// handleVerdict handles the server's verdict and turns a grant into a hold.
func (a *attempt) handleVerdict(ctx context.Context, s *session, r pipe.Row, err error, sent time.Time) (driver.Grant, error) {
	if err != nil {
		return driver.Grant{}, err
	}
	switch r.Text(0) {
	case "ok":
		return a.grant(ctx, s, r, sent)
	case "limit":
		return driver.Grant{}, fmt.Errorf("%w: %q is shared with limit %d, not %d; use the same limit in all requests",
			driver.ErrInvalid, a.req.Name, r.Int(1), a.req.Limit)
	case "busy":
		return driver.Grant{}, errBusy
	}
	return driver.Grant{}, errHeld
}

// grant turns a locked key into a hold.
func (a *attempt) grant(ctx context.Context, s *session, r pipe.Row, sent time.Time) (driver.Grant, error) {
	if a.req.MinHold > 0 {
		if err := a.storeMinHold(ctx); err != nil {
			return driver.Grant{}, err
		}
	}
	h := a.hold(s, r.Int(1))
	if s.waiter {
		h.lease = min(h.ttl, grantTTL)
		if time.Since(sent) > h.lease/2 {
			sent = time.Time{} // too little of the lease would be left
		}
	}
	if err := a.holds.enter(h, a.local); err != nil {
		return driver.Grant{}, err
	}
	a.own.listen()
	return driver.Grant{Owner: h.owner, Token: h.token, Floor: cmp.Or(r.Int(2), h.token), Sent: sent, TTL: h.lease}, nil
}

// hold returns the hold that the granted request becomes.
func (a *attempt) hold(s *session, token int64) *hold {
	return &hold{session: s, key: a.key, name: a.req.Name, owner: a.owner, token: token,
		mode: a.req.Mode, ttl: a.req.TTL, lease: a.req.TTL, lost: a.req.OnLost, until: time.Now().Add(a.req.TTL)}
}

// storeMinHold stores a minimum hold on a connection without leases, because it waits for the disk
// and for synchronous standbys.
func (a *attempt) storeMinHold(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(askLimit, a.req.TTL/3))
	defer cancel()
	least := a.req.MinHold + time.Millisecond - 1 // the server counts whole milliseconds
	_, err := a.own.ask(ctx, "SELECT fencelock.close($1::bigint, $2::text, $3::bigint)", a.key, a.req.Name, least)
	if err != nil {
		return fmt.Errorf("the minimum hold could not be stored: %w", err)
	}
	return nil
}

// withdrawMinHold deletes the minimum hold of a failed request that still holds its key
// exclusively, so that only this request can have written it. The store may still be running on the
// same connection; the delete runs after it. If the key has a new holder, it does nothing.
func (a *attempt) withdrawMinHold() {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	_, _ = a.own.ask(ctx, `DELETE FROM fencelock.minimum WHERE key = $1::bigint
		AND EXISTS (SELECT FROM fencelock.held WHERE key = $1::bigint AND owner = $2::text)`, a.key, a.owner) // if it fails, the minimum hold expires by itself
}

// detach runs undo for an unanswered statement in the background. The request keeps its place until
// undo is done, because no other request of this process may use the key before.
func (a *attempt) detach(undo func()) {
	a.detached = true
	go func() { // ends when the server has answered or the connection has ended
		undo()
		a.giveUp()
	}()
}

// checkLimit rejects a limit that does not fit the database column.
func checkLimit(limit int) error {
	if limit > math.MaxInt32 {
		return fmt.Errorf("%w: the limit %d is too large; the maximum is %d", driver.ErrInvalid, limit, math.MaxInt32)
	}
	return nil
}
