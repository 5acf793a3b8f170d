package redislock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/internal/words"
)

// AcquireAll makes one acquisition of each name or none, at once; see
// [driver.AllAcquirer]. It takes exclusive locks only, on a Cluster only names
// that share a slot, at most 64 names, and none with Config.Quarantine: for others
// it is driver.ErrUnsupported, as it is for names that somebody waits for.
func (e *Engine) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	claims := make([]*waiter, len(reqs))
	for i, req := range reqs {
		ks, err := e.check(ctx, req)
		if err != nil {
			return nil, err
		}
		claims[i] = &waiter{req: req, keys: ks, desc: e.describe(req)}
	}
	if err := e.checkAll(claims); err != nil {
		return nil, err
	}
	e.askTime(ctx)
	e.listen() // a break is told by message
	limited := withDeadline(ctx, e.cfg.RetryTimeout)
	var why error
	for pause := newBackoff(); ; {
		grants, again, err := e.takeAll(limited, claims)
		why = cause(why, err)
		if !again || limited.Err() != nil || e.closed.Err() != nil {
			return grants, why
		}
		end, _ := limited.Deadline()
		retry.Sleep(ctx, min(pause.Next(), time.Until(end)))
	}
}

// checkAll returns an ErrUnsupported that says why the names cannot be taken in
// one step.
func (e *Engine) checkAll(claims []*waiter) error {
	switch {
	case len(claims) == 0:
		return fmt.Errorf("%w: no names", driver.ErrInvalid)
	case len(claims) > maxBatch:
		return fmt.Errorf("%w: %d names at once are more than %d", driver.ErrUnsupported, len(claims), maxBatch)
	case e.cfg.Quarantine:
		return fmt.Errorf("%w: several names at once with a quarantine", driver.ErrUnsupported)
	case claims[0].req.Mode != driver.Exclusive || claims[0].req.MinHold > 0:
		return fmt.Errorf("%w: several names at once, unless they are exclusive and without a minimum hold", driver.ErrUnsupported)
	}
	for _, w := range claims {
		if e.conn.Cluster() && slotTag(w.keys.lock) != slotTag(claims[0].keys.lock) {
			return fmt.Errorf("%w: %q and %q lie in different slots of the Redis Cluster; give them one hash tag to take them at once",
				driver.ErrUnsupported, claims[0].req.Name, w.req.Name)
		}
	}
	return nil
}

// slotTag returns the part of a key that Redis Cluster hashes.
func slotTag(key string) string {
	if !hasTag(key) {
		return key
	}
	_, after, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(after, "}")
	return tag
}

// takeAll makes one try, under owners of its own. Again says that another one may
// succeed; what may have come of this one is withdrawn.
func (e *Engine) takeAll(ctx context.Context, claims []*waiter) (grants []driver.Grant, again bool, err error) {
	ttl := claims[0].req.TTL
	limit := attemptLimit(ttl)
	until, late := e.until(ctx, limit)
	c := Call{Script: acquireAllScript, Args: []string{e.retention, millis(ttl), until}, Replicas: e.cfg.MinReplicas}
	for _, w := range claims {
		if w.owner, err = newOwner(); err != nil {
			return nil, false, err
		}
		w.late = 0
		c.Keys = append(c.Keys, w.keys.lock, w.keys.fence)
		c.Args = append(c.Args, "fencelock "+w.owner+" ", w.desc)
	}
	sent := time.Now()
	r := e.conn.Eval(withDeadline(ctx, limit), []Call{c})[0]
	if r.Err != nil {
		for _, w := range claims {
			w.unanswered(r.Err, late)
		}
		e.withdrawAll(claims)
		return nil, passing(r.Err), unavailable(r.Err)
	}
	if now, ok := strings.CutPrefix(r.Text, "late "); ok {
		e.clock.note(sample{sent: sent, server: number(now)}, true)
		return nil, true, errLate
	}
	grants, err = e.parseAll(claims, r, sent)
	return grants, false, err
}

// parseAll reads what the script said.
func (e *Engine) parseAll(claims []*waiter, r Reply, sent time.Time) ([]driver.Grant, error) {
	in := words.Words{Rest: r.Text}
	switch status := in.Next(); {
	case status == "slow":
		return nil, fmt.Errorf("%w: several names at once while they are contended", driver.ErrUnsupported)
	case status == "held":
		if i := in.Int() - 1; !in.Bad && i >= 0 && i < int64(len(claims)) {
			return nil, readOutlook(&in).held(claims[i].req.Name)
		}
	case status == "taken":
		token := in.Int()
		if in.Bad {
			break
		}
		if r.Replicas < e.cfg.MinReplicas {
			e.withdrawAll(claims)
			return nil, fmt.Errorf("%w: %d of %d replicas acknowledged in time", driver.ErrUnavailable, r.Replicas, e.cfg.MinReplicas)
		}
		grants := make([]driver.Grant, len(claims))
		for i, w := range claims {
			grants[i] = driver.Grant{Owner: w.owner, Token: token, Floor: token, Sent: sent, TTL: w.req.TTL}
			e.hold(w, token)
		}
		return grants, nil
	}
	e.withdrawAll(claims)
	return nil, malformed(r.Text)
}

// withdrawAll gives back whatever has become of the claims. Each withdrawal keeps
// its own copy: the next try has other owners.
func (e *Engine) withdrawAll(claims []*waiter) {
	for _, w := range claims {
		e.withdraw(&waiter{req: w.req, keys: w.keys, desc: w.desc, owner: w.owner, late: w.late}, 0)
	}
}
