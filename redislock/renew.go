package redislock

import (
	"context"
	"fmt"
	"strconv"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/words"
)

// Renew extends acquisitions, all in one pipeline. One that expired, was broken
// or deleted, or whose key somebody else took is driver.ErrNotHeld.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	calls := make([]Call, 0, len(leases))
	where := make([]int, 0, len(leases))
	for i, l := range leases {
		ks, err := e.keysOf(l.Name)
		if err != nil {
			errs[i] = err
			continue
		}
		token := strconv.FormatInt(l.Token, 10)
		c := Call{Script: renewScript, Keys: []string{ks.lock}, Args: []string{"fencelock " + l.Owner + " " + token + " ", millis(l.TTL)}}
		if l.Mode == driver.Shared {
			c = e.call(confirmScript, ks, l.Owner, token, letter(l.Mode), millis(l.TTL), "0")
		}
		calls = append(calls, c)
		where = append(where, i)
	}
	if len(calls) == 0 {
		return errs
	}
	for i, r := range e.conn.Eval(ctx, calls) {
		errs[where[i]] = e.standing(leases[where[i]], r)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, l := range leases {
		if errs[i] == nil {
			e.note(nameindex.Noted{Owner: l.Owner, Name: l.Name, Life: l.TTL + nameindex.Lag})
		}
	}
	return errs
}

// standing turns the answer for one acquisition into an error.
func (e *Engine) standing(l driver.Lease, r Reply) error {
	switch {
	case r.Err != nil:
		return unavailable(r.Err)
	case r.Text == "gone":
		e.forget(l.Owner)
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
	}
	return nil
}

// Release ends an acquisition and hands the name to the next waiter. It may be
// called again if it failed.
func (e *Engine) Release(ctx context.Context, l driver.Lease) error {
	ks, err := e.keysOf(l.Name)
	if err != nil {
		return err
	}
	e.mu.Lock()
	late := e.holds[l.Owner].late
	e.mu.Unlock()
	r := e.free(ctx, ks, l, late)
	e.forget(l.Owner)
	if r.Err != nil && late > 0 { // another release would not know of the late try
		e.withdraw(&waiter{keys: ks, owner: l.Owner, desc: e.id + " x 0 0 0 ", late: late}, 0)
	}
	return e.standing(l, r)
}

// free makes one try of a release. Most share a script with others. Late is until
// when a try of the acquire may still be served: it must not be.
func (e *Engine) free(ctx context.Context, ks keys, l driver.Lease, late int64) Reply {
	c := e.releaseCall(ks, l.Mode, l.Owner, l.Token)
	if late > 0 {
		if l.Mode == driver.Exclusive {
			c.Args = append(c.Args, "")
		}
		c.Args = append(c.Args, strconv.FormatInt(late, 10))
	}
	single := func() Reply { return e.conn.Eval(ctx, []Call{c})[0] }
	if alone := e.batcher.tryStart(); alone || late > 0 || l.Mode != driver.Exclusive || !e.canBatch() {
		if alone {
			defer e.finishCall()
		}
		return single()
	}
	limit := attemptLimit(l.TTL)
	v := e.send(withDeadline(ctx, limit), &pendingOp{keys: ks, limit: limit, args: c.Args[1:]})
	switch v.letter {
	case 'o':
		return Reply{Text: "ok"}
	case 'g':
		return Reply{Text: "gone"}
	case 's', refused:
		return single()
	}
	return Reply{Err: v.err}
}

// releaseCall makes a call of the release script.
func (e *Engine) releaseCall(ks keys, mode driver.Mode, owner string, token int64) Call {
	number := strconv.FormatInt(token, 10)
	own := owner + " " + number + " "
	if mode == driver.Shared {
		return e.call(releaseScript, ks, own, number)
	}
	return e.call(releaseScript, ks, "fencelock "+own)
}

// Break ends every acquisition of name and its minimum hold, tells the holders that
// can be reached, and lets in whoever is next. A lock that another program took is deleted.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	ks, err := e.keysOf(name)
	if err != nil {
		return 0, err
	}
	text, err := e.eval(ctx, e.call(breakScript, ks, reason))
	if err != nil {
		return 0, unavailable(err)
	}
	in := words.Words{Rest: text}
	switch in.Next() {
	case "gone":
		return 0, fmt.Errorf("%w: %q", driver.ErrNotHeld, name)
	case "broken":
		if token := in.Int(); !in.Bad {
			return token, nil
		}
	}
	return 0, malformed(text)
}
