package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// multiAcquire is several requests on their way to be granted together.
type multiAcquire struct {
	*acquirer
	parts    []*attempt // in the order of their keys, which are distinct
	detached bool       // a goroutine goes on for it, and gives up its turns
}

// AcquireAll makes one acquisition of each name or none; see [Engine.AcquireAll].
func (acq *acquirer) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	b, err := acq.newMultiAcquire(reqs)
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

// newMultiAcquire checks requests and puts them in the order of their keys, in which every
// multiAcquire waits for the turns of this process: so none waits for another in a circle.
func (acq *acquirer) newMultiAcquire(reqs []driver.Request) (*multiAcquire, error) {
	b := &multiAcquire{acquirer: acq}
	for _, req := range reqs {
		a, err := acq.attempt(req)
		if err != nil {
			return nil, err
		}
		if first := reqs[0]; req.Wait || req.MinHold > 0 || req.Mode != first.Mode || req.Limit != first.Limit || req.TTL != first.TTL {
			return nil, fmt.Errorf("%w: postgres takes names together only without waiting or a minimum hold, in one mode, with one limit and one TTL", driver.ErrUnsupported)
		}
		b.parts = append(b.parts, a)
	}
	slices.SortFunc(b.parts, func(x, y *attempt) int { return cmp.Compare(x.key, y.key) })
	for i := 1; i < len(b.parts); i++ {
		if x, y := b.parts[i-1], b.parts[i]; x.key == y.key {
			return nil, fmt.Errorf("%w: %q and %q have the same key; nobody can hold both", driver.ErrInvalid, x.req.Name, y.req.Name)
		}
	}
	return b, nil
}

// acquire waits for the process's turns and asks until there is an answer.
func (b *multiAcquire) acquire(ctx context.Context) (grants []driver.Grant, err error) {
	defer func() {
		if err != nil && !b.detached {
			b.giveUp()
		}
	}()
	for _, a := range b.parts {
		if err := a.enter(ctx); err != nil {
			return nil, a.failed(ctx, err)
		}
	}
	pause := retry.NewBackoff(10*time.Millisecond, time.Second)
	for n := 1; ; n++ {
		grants, a, err := b.once(ctx)
		if err == nil {
			return grants, nil
		}
		d, again := a.again(err, n, pause)
		if !again || b.detached || ctx.Err() != nil {
			return nil, a.failed(ctx, err)
		}
		for _, a := range b.parts {
			a.anew(err)
		}
		if !retry.Sleep(ctx, d) {
			return nil, ctx.Err()
		}
	}
}

// giveUp gives turns up, and the room of the requests.
func (b *multiAcquire) giveUp() {
	for _, a := range b.parts {
		a.giveUp()
	}
}

// once asks the server once. With an error comes the request that it is about.
func (b *multiAcquire) once(ctx context.Context) ([]driver.Grant, *attempt, error) {
	first := b.parts[0]
	_, lock := b.locks.pick(first.req.TTL)
	s, err := lock.get(ctx)
	if err == nil {
		err = s.quarantine(time.Now())
	}
	if err == nil && !first.roomy {
		err = b.room.enter(ctx, s, len(b.parts))
	}
	if err != nil {
		return nil, first, err
	}
	for _, a := range b.parts {
		a.roomy = true
	}
	for _, a := range b.parts {
		if a.req.Mode != driver.Shared {
			continue
		}
		if shares, err := s.shared.has(ctx, a.key); err != nil {
			return nil, a, err
		} else if shares {
			return nil, a, fmt.Errorf("%w: this process shares %q already", driver.ErrUnsupported, a.req.Name)
		}
	}
	who := make([]map[string]any, len(b.parts))
	for i, a := range b.parts {
		who[i] = a.fields()
	}
	c := s.Call(s.fn["together"], string(object(who)), s.id, time.Now().UnixMicro())
	r, err := c.Result(ctx)
	if err != nil && c.Answered() {
		r, err = c.Result(context.Background()) // it may have come in the same instant
	}
	if err != nil && !c.Answered() {
		b.detached = true
		go func() { // ends when the server has answered or the connection has ended
			_, _ = c.Wait(context.Background()) // whatever the answer is, nothing may stay
			b.undo(s)
			b.giveUp()
		}()
		return nil, first, err
	}
	return b.judged(s, r, err, c.Sent())
}

// judged reads the server's verdict, and makes holds of its grants.
func (b *multiAcquire) judged(s *session, r pipe.Row, err error, sent time.Time) ([]driver.Grant, *attempt, error) {
	first := b.parts[0]
	if err != nil {
		s.outdated(err)
		b.undo(s)
		return nil, first, err
	}
	if !strings.HasPrefix(r.Text(0), "ok") {
		at := r.Int(0)
		if at < 0 || int(at) >= len(b.parts) {
			return nil, first, errAnswer
		}
		_, err := b.parts[at].judged(context.Background(), s, r[1:], nil, sent)
		return nil, b.parts[at], err
	}
	grants, err := b.grant(s, r, sent)
	if err != nil {
		b.undo(s)
	}
	return grants, first, err
}

// errAnswer is why nothing is believed of an answer.
var errAnswer = errors.New("the server answered for other names than it was asked for")

// undo frees whatever the server may have granted. The keys are nobody else's on
// this session: the multiAcquire has the turns of all.
func (b *multiAcquire) undo(s *session) {
	for _, a := range b.parts {
		fn, args := "free", []any{a.key, a.owner}
		if a.req.Mode == driver.Shared {
			fn, args = "leave", append(args, true)
		}
		if r, err := s.Call(s.fn[fn], args...).Result(context.Background()); err != nil || r.Text(0) != "t" {
			_ = s.unlock(a.key, a.req.Mode) // a session that cannot has ended
			if err != nil && s.Err() == nil {
				go b.own.forget(s, a.key, a.owner) // ends when it is done, or with the session
			}
		}
	}
}

// grant makes the locked keys holds. The answer is a list of verdicts, each of which has a
// token, and a floor if others may be in.
func (b *multiAcquire) grant(s *session, r pipe.Row, sent time.Time) ([]driver.Grant, error) {
	var all strings.Builder
	for i := range r {
		all.WriteString(r.Text(i) + " ")
	}
	var numbers [][]string
	for part := range strings.SplitSeq(all.String(), "ok ") {
		if f := strings.Fields(part); len(f) > 0 {
			numbers = append(numbers, f)
		}
	}
	if len(numbers) != len(b.parts) {
		return nil, errAnswer
	}
	holds, grants := make([]*hold, len(b.parts)), make([]driver.Grant, len(b.parts))
	for i, a := range b.parts {
		row := pipe.Row{[]byte(numbers[i][0]), []byte(numbers[i][len(numbers[i])-1])}
		holds[i] = a.hold(s, row.Int(0))
		grants[i] = driver.Grant{Owner: a.owner, Token: holds[i].token, Floor: row.Int(1), Sent: sent, TTL: a.req.TTL}
	}
	begin := func() {
		for _, a := range b.parts {
			a.turns.change(a.key, func(t *turn) { t.hold(a.place) })
		}
	}
	if err := b.holds.enter(begin, holds...); err != nil {
		return nil, err
	}
	b.own.listen()
	return grants, nil
}
