package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// Renew extends acquisitions, all in one pipeline. It returns driver.ErrNotHeld for those that
// expired, were broken or deleted, or whose key another program replaced. After a pipeline that was
// not answered, the next one uses a new connection of a go-redis client. A closed engine renews nothing.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	if e.tasks.Closed.Err() != nil {
		return slices.Repeat([]error{unavailable(errClosed)}, len(leases))
	}
	// The short renew script compares the value of an exclusive lock. Shared locks are sorted sets
	// and need the longer script.
	errs := make([]error, len(leases))
	calls := make([]redisconn.Call, 0, len(leases))
	where := make([]int, 0, len(leases))
	for i, l := range leases {
		lock, err := e.lockKey(l.Name)
		if err != nil {
			errs[i] = err
			continue
		}
		token := strconv.FormatInt(l.Token, 10)
		c := renewCall(lock, l.Owner, token, redisfmt.Millis(l.TTL))
		if l.Mode == driver.Shared {
			c = e.call(confirmScript, lock, l.Owner, token, redisfmt.Millis(l.TTL), "0")
		}
		calls = append(calls, c)
		where = append(where, i)
	}
	if len(calls) == 0 {
		return errs
	}
	part := e.Part(leases[where[0]])
	if _, silent := e.silent.Load(part); silent {
		ctx = redisconn.Fresh(ctx)
	}
	unanswered := false
	for i, r := range e.conn.Eval(ctx, calls) {
		errs[where[i]] = e.standing(leases[where[i]], r)
		_, refused := redisconn.Refused(r.Err)
		unanswered = unanswered || r.Err != nil && !refused
	}
	if unanswered && !redisconn.IsFresh(ctx) { // after one on a new connection, the pool is tried again
		e.silent.Store(part, true)
	} else {
		e.silent.Delete(part)
	}
	e.queue.extended(leases, errs)
	for i, l := range leases {
		if errs[i] == nil {
			e.queue.index.Add(nameindex.Noted{Owner: l.Owner, Name: l.Name, Life: l.TTL + nameindex.Lag})
		}
	}
	return errs
}

// renewCall renews an exclusive lock, and confirms a grant of one.
func renewCall(lock, owner, token, life string) redisconn.Call {
	return redisconn.Call{Script: renewScript, Keys: []string{lock}, Args: []string{holderPrefix + owner + " " + token + " ", life}}
}

// standing converts the answer for one acquisition to an error. If the acquisition is gone, its
// hold is forgotten, as later messages about it are irrelevant.
func (e *Engine) standing(l driver.Lease, r redisconn.Reply) error {
	switch {
	case r.Err != nil:
		return unavailable(r.Err)
	case strings.HasPrefix(r.Text, "gone"):
		e.queue.forget(l.Owner)
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
	}
	return nil
}
