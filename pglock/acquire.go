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
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/internal/words"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/google/uuid"
)

// acquirer makes requests of this process holds.
type acquirer struct {
	own     *ownSession
	locks   *lockSessions // where a free key is taken
	waiters *waiterPool   // where one is waited for
	turns   *turns        // one request for a key asks the server at a time
	holds   *holdings     // where a grant goes
	room    *room         // among the server's locks
	maxTTL  time.Duration // Config.MaxTTL
}

// minTTL is the shortest lease: a heartbeat at a third of it must get through.
const minTTL = 500 * time.Millisecond

// traits are those of the engine.
func (acq *acquirer) traits() driver.Traits {
	return driver.Traits{Engine: "postgres", Leased: true, Order: driver.OrderProcess, Limits: true, Rates: true,
		MinTTL: minTTL, MaxTTL: acq.maxTTL}
}

// attempt is one request on its way to a grant.
type attempt struct {
	*acquirer
	req      driver.Request
	key      int64
	owner    string
	spent    []string // owners of tries that a connection ended under, the last few
	place    *place   // in the turn of this process
	ticket   int64    // in the server's queue, on the session of uncontended locks; 0 means none
	unqueue  func()   // gives the ticket back; nil if there is none
	roomy    bool     // its room in the lock table is taken
	detached bool     // a goroutine goes on for it, and gives up its turn
	listed   bool     // it has a row among the waiters
	told     bool     // whoever wants to know has heard that it waits
	heard    driver.Waited
}

// errHeld is how steps of an acquire say that somebody else is in the way.
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
	g, err := a.acquire(ctx)
	if err == nil {
		return g, nil
	}
	return g, a.failed(ctx, err)
}

// failed puts an error into the words of package driver.
func (a *attempt) failed(ctx context.Context, err error) error {
	if errors.Is(err, errHeld) {
		held, err := a.whoIsIn(ctx)
		nobody := held.Owner == "" && held.PID == 0 && held.Until.IsZero()
		if len(a.spent) > 0 && (err != nil || nobody || slices.Contains(a.spent, held.Owner)) {
			return a.heard.Ended(ctx, failure(errSilent)) // by a try of its own, which may have let go meanwhile
		}
		if own, _ := a.own.get(ctx); err == nil && own != nil {
			err = own.quarantine(time.Now())
		}
		if err != nil && a.place.refused { // and the server has not said that it is held
			return a.heard.Ended(ctx, failure(err))
		}
		return a.heard.Ended(ctx, held)
	}
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return a.heard.Ended(ctx, failure(err))
	}
	if held, _ := a.heard.Last(); held != nil {
		if held, err := a.whoIsIn(ctx); err == nil {
			a.heard.Held(held)
		}
	}
	return a.heard.Ended(ctx, nil)
}

// attempt checks a request.
func (acq *acquirer) attempt(req driver.Request) (*attempt, error) {
	if err := req.Check(acq.traits()); err != nil {
		return nil, err
	}
	if err := checkLimit(req.Limit); err != nil {
		return nil, err
	}
	req.Host, req.Note = plain(words.Host(req.Identity)), plain(req.Note)
	return &attempt{acquirer: acq, req: req, key: keyOf(req.Name), owner: newOwner()}, nil
}

func newOwner() string { return uuid.Must(uuid.NewV7()).String() } // never fails

// plain makes a text one that the server stores.
func plain(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", `\x00`)
}

// acquire waits for the process's turn and asks until there is an answer.
func (a *attempt) acquire(ctx context.Context) (g driver.Grant, err error) {
	done := false
	defer func() { // also when Waiting panics
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
		a.anew(err)
		if !retry.Sleep(ctx, d) {
			return g, ctx.Err()
		}
	}
}

// maxSpent is how many owners of its own a request remembers.
const maxSpent = 8

// anew gives the next try an owner of its own if a connection ended under the last one, or
// became silent. That may have been granted, or may be yet: what it left is nobody's, and the
// next one need not wait for it.
func (a *attempt) anew(err error) {
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

// gone are the owners whose rows the request need not wait for, separated by spaces.
func (a *attempt) gone() string {
	return strings.Join(a.spent, " ")
}

// giveUp leaves the turn of this process, wherever the request stands.
func (a *attempt) giveUp() {
	if a.unqueue != nil {
		a.unqueue()
	}
	if a.roomy {
		a.room.leave()
	}
	if a.place != nil {
		a.turns.change(a.key, func(t *turn) { t.quit(a.place) })
	}
}

// enough is how often a try is made before it says that the server is unavailable.
const enough = 4

// again says whether, and after which pause, an attempt is worth another one.
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
	return pause.Next(), a.req.Wait || n < enough
}

// errBusy is why a request asks again at once: another one joins the holders.
var errBusy = errors.New("another request joins the holders")

// remember keeps what went wrong, for the case that ctx ends before the next attempt,
// and tells who wants to know that the server grants nothing yet. No try of this process
// waits until that has passed.
func (a *attempt) remember(ctx context.Context, err error) {
	if errors.Is(err, errBusy) {
		return
	}
	a.heard.Unavailable(ctx, failure(err))
	if a.req.Wait {
		a.turns.change(a.key, func(t *turn) { t.block() })
	}
	if _, ok := errors.AsType[*quarantined](err); ok && !a.told && a.req.Wait && a.req.OnWait != nil {
		a.told = true
		a.req.OnWait(driver.WaitInfo{Trouble: err})
	}
}

// once asks the server once, and waits there if the request wants to.
func (a *attempt) once(ctx context.Context) (driver.Grant, error) {
	_, lock := a.locks.pick(a.req.TTL)
	s, err := lock.get(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	if err := s.quarantine(time.Now()); err != nil {
		return driver.Grant{}, err
	}
	if !a.roomy {
		if err := a.room.enter(ctx, s); err != nil {
			return driver.Grant{}, err
		}
		a.roomy = true
	}
	g, err := a.try(ctx, s)
	if errors.Is(err, errHeld) && a.req.Wait {
		a.heard.Held(&driver.HeldError{Name: a.req.Name})
		g, err = a.queueUp(ctx, s)
	}
	s.outdated(err)
	return g, err
}

// try takes a free key on the session of uncontended locks.
func (a *attempt) try(ctx context.Context, s *session) (driver.Grant, error) {
	c, have, err := a.send(ctx, s)
	if err != nil {
		return driver.Grant{}, err
	}
	if _, err := c.ResultUnlessSilent(ctx); !c.Answered() {
		a.abandon(s, c, have, errors.Is(err, errSilent))
		return driver.Grant{}, err
	}
	r, err := c.Result(context.Background()) // it is answered, perhaps in the instant in which ctx ended
	g, failed := a.judged(ctx, s, r, err, c.Sent())
	if failed != nil {
		a.undo(s, r, err, have)
	} else if a.req.Mode == driver.Shared && s.shared.quit(a.key) {
		_ = s.unlock(a.key, a.req.Mode) // the hold has ended already, and left the lock to this request
	}
	return g, failed
}

// abandon undoes a try in the background that its session has not answered. On a silent session it
// goes on by itself, so that the request can be made on another one, or the next of this process:
// no request for the key is made on a silent session any more, and on others the server tells it
// apart.
func (a *attempt) abandon(s *session, c *pipe.Call, have, silent bool) {
	try := *a // whose owner stays
	undo := func() {
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

// send sends the request, and says whether the session shares the key already. A shared one
// counts as a holder from now on, so that no other that ends meanwhile takes the lock away.
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

// lockArgs are the arguments that all requests have; see sql/lock.sql.
func (a *attempt) lockArgs(s *session, ticket int64, ttl time.Duration) []any {
	return []any{a.key, a.owner, a.req.Name, ttl, s.id, a.req.Host, int32(a.req.PID), a.req.Note,
		ticket, time.Now().UnixMicro(), a.gone()}
}

// undo frees what the server may have granted to a request that has come to nothing.
func (a *attempt) undo(s *session, r pipe.Row, err error, have bool) {
	if err == nil && r.Text(0) == "ok" && a.req.MinHold > 0 {
		a.withdrawMinHold()
	}
	alone := true // nobody else needs the lock
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
		go a.own.forget(s, a.key, a.owner) // ends when it is done, or with the session
	case alone && (err != nil || have): // what was written is rolled back, and a lock may have stayed
		_ = s.unlock(a.key, a.req.Mode) // a session that cannot has ended
	case err == nil && r.Text(0) == "ok":
		if r, err := s.Call(s.fn["free"], a.key, a.owner).Result(context.Background()); err != nil || r.Text(0) != "t" {
			_ = s.unlock(a.key, a.req.Mode)
			go a.own.forget(s, a.key, a.owner) // ends when it is done, or with the session
		}
	}
}

// judged reads the server's verdict, and makes a hold of a grant.
func (a *attempt) judged(ctx context.Context, s *session, r pipe.Row, err error, sent time.Time) (driver.Grant, error) {
	if err != nil {
		return driver.Grant{}, err
	}
	switch r.Text(0) {
	case "ok":
		return a.grant(ctx, s, r, sent)
	case "limit":
		return driver.Grant{}, fmt.Errorf("%w: %q is shared with limit %d, not %d; use the same limit everywhere",
			driver.ErrInvalid, a.req.Name, r.Int(1), a.req.Limit)
	case "busy":
		return driver.Grant{}, errBusy
	}
	return driver.Grant{}, errHeld
}

// grant makes a locked key a hold.
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
			sent = time.Time{} // too little would be left of it
		}
	}
	if err := a.holds.enter(h, a.place); err != nil {
		return driver.Grant{}, err
	}
	a.own.listen()
	return driver.Grant{Owner: h.owner, Token: h.token, Floor: cmp.Or(r.Int(2), h.token), Sent: sent, TTL: h.lease}, nil
}

// hold is what the request becomes.
func (a *attempt) hold(s *session, token int64) *hold {
	return &hold{session: s, key: a.key, name: a.req.Name, owner: a.owner, token: token,
		mode: a.req.Mode, ttl: a.req.TTL, lease: a.req.TTL, lost: a.req.OnLost, until: time.Now().Add(a.req.TTL)}
}

// storeMinHold writes down a minimum hold, on a connection that carries no leases: it waits for the
// disk, and for standbys that a commit waits for.
func (a *attempt) storeMinHold(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(askLimit, a.req.TTL/3))
	defer cancel()
	least := a.req.MinHold + time.Millisecond - 1 // the server counts whole ones
	_, err := a.own.ask(ctx, "SELECT fencelock.close($1::bigint, $2::text, $3::bigint)", a.key, a.req.Name, least)
	if err != nil {
		return fmt.Errorf("the minimum hold could not be written down: %w", err)
	}
	return nil
}

// withdrawMinHold takes a minimum hold back that may have been written down for a request that
// holds its key exclusively still, and so is the only one that wrote one. It comes after the
// storing of it, which may be under way on the same connection, and waits for both; once the
// key is another's, it does nothing.
func (a *attempt) withdrawMinHold() {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	_, _ = a.own.ask(ctx, `DELETE FROM fencelock.minimum WHERE key = $1::bigint
		AND EXISTS (SELECT FROM fencelock.held WHERE key = $1::bigint AND owner = $2::text)`, a.key, a.owner) // else the name opens by itself
}

// detach lets undo go on with an unanswered statement, and keeps the turn until
// it is done: nobody in this process may touch the key before.
func (a *attempt) detach(undo func()) {
	a.detached = true
	go func() { // ends when the server has answered or the connection has ended
		undo()
		a.giveUp()
	}()
}

// checkLimit refuses a limit that the server's columns have no room for.
func checkLimit(limit int) error {
	if limit > math.MaxInt32 {
		return fmt.Errorf("%w: the limit %d is more than %d", driver.ErrInvalid, limit, math.MaxInt32)
	}
	return nil
}
