package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/fencelock/fencelock/driver"
	"github.com/google/uuid"
)

var (
	stmtTogether      = &statement{"together", `SELECT at, toks, toks, look FROM fencelock.together(CAST($1::text AS bigint[]), $2::integer)`}
	stmtShareTogether = &statement{"share_together", `SELECT at, toks, low, false, verdict, lim
FROM fencelock.share_together(CAST($1::text AS bigint[]), $2::integer, $3::bigint, CAST($4::text AS jsonb))`}
	stmtUnlockEach       = &statement{"unlock_each", `SELECT pg_advisory_unlock(k) FROM unnest(CAST($1::text AS bigint[])) k`}
	stmtUnlockEachShared = &statement{"unlock_each_shared", `SELECT pg_advisory_unlock_shared(k) FROM unnest(CAST($1::text AS bigint[])) k`}
	stmtForgetEach       = &statement{"forget_each", `DELETE FROM fencelock.holder WHERE owner = ANY (CAST($1::text AS text[]))`}
)

// bundle is several requests on their way to be granted together.
type bundle struct {
	*Engine
	parts    []*attempt // in the order of their keys, which are distinct
	keys     []int64
	detached bool // a goroutine goes on for it, and gives up its turns
}

// AcquireAll makes one acquisition of each name or none, with one statement; see
// [driver.AllAcquirer]. It is driver.ErrUnsupported for a minimum hold, and for
// a name that this process shares already. Two names that have the same key are
// driver.ErrInvalid: nobody can hold both.
func (e *Engine) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	b, err := e.bundle(reqs)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || len(reqs) == 0 {
		return nil, err
	}
	all, err := b.acquire(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]driver.Grant{}
	for i, a := range b.parts {
		byName[a.req.Name] = all[i]
	}
	grants := make([]driver.Grant, len(reqs))
	for i, req := range reqs {
		grants[i] = byName[req.Name]
	}
	return grants, nil
}

// bundle checks requests and puts them in the order of their keys, in which every
// bundle waits for the turns of this process: so none waits for another in a circle.
func (e *Engine) bundle(reqs []driver.Request) (*bundle, error) {
	b := &bundle{Engine: e}
	for _, req := range reqs {
		if err := req.Check(e.Traits()); err != nil {
			return nil, err
		}
		if err := checkLimit(req.Limit); err != nil {
			return nil, err
		}
		if first := reqs[0]; req.Wait || req.AtLeast > 0 || req.Mode != first.Mode || req.Limit != first.Limit || req.TTL != first.TTL {
			return nil, fmt.Errorf("%w: postgres takes names together only without waiting or a minimum hold, in one mode, with one limit and one TTL", driver.ErrUnsupported)
		}
		owner, err := uuid.NewV7()
		if err != nil {
			return nil, unavailable(err)
		}
		b.parts = append(b.parts, &attempt{Engine: e, req: req, key: keyOf(req.Name), owner: owner.String()})
	}
	slices.SortFunc(b.parts, func(x, y *attempt) int { return cmp.Compare(x.key, y.key) })
	for i, a := range b.parts {
		if i > 0 && a.key == b.keys[i-1] {
			return nil, fmt.Errorf("%w: %q and %q have the same key; nobody can hold both", driver.ErrInvalid, b.parts[i-1].req.Name, a.req.Name)
		}
		b.keys = append(b.keys, a.key)
	}
	return b, nil
}

// acquire waits for the process's turns and asks until there is an answer.
func (b *bundle) acquire(ctx context.Context) ([]driver.Grant, error) {
	for i, a := range b.parts {
		if err := a.enter(ctx); err != nil {
			b.quit(b.parts[:i])
			return nil, a.failed(ctx, err)
		}
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 10*time.Millisecond, time.Second
	for n := 1; ; n++ {
		grants, a, err := b.once(ctx)
		if err == nil {
			return grants, nil
		}
		d, again := a.retry(err, n, pause)
		a.remember(ctx, err)
		if again = again && !b.detached; again {
			err = sleep(ctx, d, nil, err)
		}
		if !again || ctx.Err() != nil {
			if !b.detached {
				b.quit(b.parts)
			}
			return nil, a.failed(ctx, err)
		}
	}
}

// quit gives turns up.
func (b *bundle) quit(parts []*attempt) {
	for _, a := range parts {
		a.turn(a.key, func(t *turn) { t.quit(a.ticket) })
	}
}

// once asks the server once. With an error comes the request that it is about.
func (b *bundle) once(ctx context.Context) ([]driver.Grant, *attempt, error) {
	first := b.parts[0]
	s, err := b.lockSession(ctx, first.req.TTL, len(b.parts))
	if err == nil {
		err = s.quarantine(time.Now())
	}
	if err != nil {
		return nil, first, err
	}
	for _, a := range b.parts {
		if a.req.Mode == driver.Shared && s.has(a.key) { // the server would let it in past others; see share
			return nil, a, fmt.Errorf("%w: this process shares %q already", driver.ErrUnsupported, a.req.Name)
		}
	}
	c := b.send(s)
	if _, err := c.wait(ctx); err != nil && !c.answered() {
		b.detached = true
		go func() { // ends when the server has answered or the connection has ended
			_, _ = c.wait(context.Background()) // whatever the answer is, nothing may stay
			b.undo(s)
			b.quit(b.parts)
		}()
		return nil, first, err
	}
	if c.err != nil {
		b.undo(s)
		return nil, first, c.err
	}
	if at := c.rows[0].int(0); at > 0 {
		return nil, b.parts[at-1], b.parts[at-1].refusedTogether(c.rows[0])
	}
	grants, err := b.grant(s, c)
	if err != nil {
		b.undo(s)
	}
	return grants, first, err
}

// send asks for all keys at once.
func (b *bundle) send(s *session) *call {
	if b.parts[0].req.Mode == driver.Exclusive {
		return s.send(stmtTogether, array(b.keys), s.id)
	}
	who := make([]map[string]any, len(b.parts))
	for i, a := range b.parts {
		who[i] = a.sharer()
	}
	return s.send(stmtShareTogether, array(b.keys), s.id, s.epoch, object(who))
}

// refusedTogether says why the request is in the way of its bundle.
func (a *attempt) refusedTogether(r row) error {
	if a.req.Mode == driver.Shared && r.text(4) == "limit" {
		return a.otherLimit(r.int(5))
	}
	return errHeld
}

// undo frees whatever the server may have granted. The keys are nobody else's on
// this session: the bundle has the turns of all.
func (b *bundle) undo(s *session) {
	stmt := stmtUnlockEach
	if b.parts[0].req.Mode == driver.Shared {
		stmt = stmtUnlockEachShared
		owners := make([]string, len(b.parts))
		for i, a := range b.parts {
			owners[i] = a.owner
		}
		s.send(stmtForgetEach, list(owners)) // else they close their names until their leases are over
	}
	if _, err := s.run(context.Background(), stmt, array(b.keys)); err != nil {
		s.distrust(err)
	}
}

// grant makes the locked keys holds.
func (b *bundle) grant(s *session, c *call) ([]driver.Grant, error) {
	r := c.rows[0]
	tokens, floors := r.ints(1), r.ints(2)
	if len(tokens) != len(b.parts) || len(floors) != len(b.parts) {
		return nil, errors.New("the server answered for other names than it was asked for")
	}
	holds, grants := make([]*hold, len(b.parts)), make([]driver.Grant, len(b.parts))
	for i, a := range b.parts {
		holds[i] = &hold{session: s, token: tokens[i]}
		if a.req.Mode == driver.Shared {
			holds[i].noted = written
		} else {
			holds[i].token += s.epoch << 40
			floors[i] = holds[i].token
		}
		grants[i] = a.granted(holds[i], floors[i], c.sent)
	}
	if err := b.keep(holds...); err != nil {
		return nil, err
	}
	for i, h := range holds {
		b.registry.note(h)
		if r.text(3) == "t" {
			s.send(stmtTidy, b.keys[i]) // as admit does
		}
	}
	return grants, nil
}
