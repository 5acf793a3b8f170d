package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
)

// AcquireAll makes one acquisition of each name or none, at once.
func (acq *acquirer) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	claims := make([]*waiter, len(reqs))
	for i, req := range reqs {
		ks, err := acq.check(ctx, req)
		if err != nil {
			return nil, err
		}
		claims[i] = &waiter{req: req, keys: ks, desc: describe(acq.id, req)}
	}
	if err := acq.checkAll(claims); err != nil {
		return nil, err
	}
	acq.askTime(ctx)
	acq.listener.start() // a break is told by message
	limited := redisconn.WithDeadline(ctx, acq.cfg.RetryTimeout)
	tried := map[string]bool{}
	var why error
	for pause := newBackoff(); ; {
		grants, again, err := acq.takeAll(limited, claims, tried)
		why = cause(why, err)
		if !again || limited.Err() != nil || acq.closed.Err() != nil {
			return grants, why
		}
		end, _ := limited.Deadline()
		retry.Sleep(ctx, min(pause.Next(), time.Until(end)))
	}
}

// checkAll returns an ErrUnsupported that says why the names cannot be taken in
// one step.
func (acq *acquirer) checkAll(claims []*waiter) error {
	switch {
	case len(claims) == 0:
		return fmt.Errorf("%w: no names", driver.ErrInvalid)
	case len(claims) > maxBatch:
		return fmt.Errorf("%w: %d names at once are more than %d", driver.ErrUnsupported, len(claims), maxBatch)
	case acq.cfg.Quarantine: // which only the script for one name looks at
		return fmt.Errorf("%w: several names at once with a quarantine", driver.ErrUnsupported)
	case claims[0].req.Mode != driver.Exclusive || claims[0].req.MinHold > 0:
		return fmt.Errorf("%w: several names at once, unless they are exclusive and without a minimum hold", driver.ErrUnsupported)
	}
	for _, w := range claims {
		if acq.cluster() && slotTag(w.keys.lock) != slotTag(claims[0].keys.lock) {
			return fmt.Errorf("%w: %q and %q lie in different slots of the Redis Cluster; give them one hash tag to take them at once",
				driver.ErrUnsupported, claims[0].req.Name, w.req.Name)
		}
	}
	return nil
}

// takeAll makes one try, under owners of its own: the script does not look for what an
// earlier try has got. Again says that another one may succeed; what may have come of
// this one is withdrawn. Tried are the owners so far: until they are withdrawn they are in
// nobody's way.
func (acq *acquirer) takeAll(ctx context.Context, claims []*waiter, tried map[string]bool) (grants []driver.Grant, again bool, err error) {
	ttl := claims[0].req.TTL
	limit := attemptLimit(ttl)
	until, late := acq.until(ctx, limit)
	c := redisconn.Call{Script: acquireAllScript, Args: []string{acq.retention, redisfmt.Millis(ttl), until}, Replicas: acq.cfg.MinReplicas}
	for _, w := range claims {
		if w.owner, err = newOwner(); err != nil {
			return nil, false, err
		}
		w.late, tried[w.owner] = 0, true
		c.Keys = append(c.Keys, w.keys.lock, w.keys.fence)
		c.Args = append(c.Args, "fencelock "+w.owner+" ", w.desc)
	}
	sent := time.Now()
	r := acq.conn.Eval(redisconn.WithDeadline(ctx, limit), []redisconn.Call{c})[0]
	if r.Err != nil {
		for _, w := range claims {
			w.unanswered(r.Err, late)
		}
		acq.withdrawAll(claims)
		return nil, passing(r.Err), unavailable(r.Err)
	}
	if now, ok := strings.CutPrefix(r.Text, "late "); ok {
		acq.clock.note(clockSample{sent: sent, server: redisfmt.Number(now)}, true)
		return nil, true, errLate
	}
	grants, err = acq.parseAll(claims, r, sent)
	if held, ok := errors.AsType[*driver.HeldError](err); ok && tried[held.Owner] {
		return nil, true, errOwed
	}
	return grants, false, err
}

// errOwed is for a name that an earlier try of the same call has got.
var errOwed = fmt.Errorf("%w: what an earlier try has got is yet to be given back", driver.ErrUnavailable)

// parseAll reads what the script said. "slow" says that one of the names needs more than
// the script for free locks knows, such as a queue: then the set takes name after name.
func (acq *acquirer) parseAll(claims []*waiter, r redisconn.Reply, sent time.Time) ([]driver.Grant, error) {
	in := redisfmt.Words{Rest: r.Text}
	switch status := in.Next(); {
	case status == "slow":
		return nil, fmt.Errorf("%w: several names at once while they are contended", driver.ErrUnsupported)
	case status == "held":
		if i := in.Int() - 1; !in.Bad && i >= 0 && i < int64(len(claims)) {
			return nil, readBlocked(&in).held(claims[i].req.Name)
		}
	case status == "taken":
		token := in.Int()
		if in.Bad {
			break
		}
		if r.Replicas < acq.cfg.MinReplicas { // a failover may forget it
			acq.withdrawAll(claims)
			return nil, fmt.Errorf("%w: %d of %d replicas acknowledged in time", driver.ErrUnavailable, r.Replicas, acq.cfg.MinReplicas)
		}
		grants := make([]driver.Grant, len(claims))
		for i, w := range claims {
			grants[i] = driver.Grant{Owner: w.owner, Token: token, Floor: token, Sent: sent, TTL: w.req.TTL}
			acq.hold(w, token)
		}
		return grants, nil
	}
	acq.withdrawAll(claims)
	return nil, malformed(r.Text)
}

// withdrawAll gives back whatever has become of the claims. Each withdrawal keeps
// its own copy: the next try has other owners.
func (acq *acquirer) withdrawAll(claims []*waiter) {
	for _, w := range claims {
		acq.withdraw(&waiter{req: w.req, keys: w.keys, desc: w.desc, owner: w.owner, late: w.late}, 0)
	}
}
