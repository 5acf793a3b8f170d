package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
		c.Args = append(c.Args, "left")
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
	unanswered, sent := false, time.Now()
	replies := e.conn.Eval(ctx, calls)
	now := time.Now()
	steady := e.own.steady(now)
	for i, r := range replies {
		l := leases[where[i]]
		errs[where[i]] = e.standing(l, r)
		_, refused := redisconn.Refused(r.Err)
		unanswered = unanswered || r.Err != nil && !refused
		if errs[where[i]] == nil {
			if early := e.queue.extended(l, sent, now, steady, leftOf(r.Text)); early > 0 {
				e.shortened(calls[i].Keys[0], early)
			}
		}
	}
	if unanswered && !redisconn.IsFresh(ctx) { // after one on a new connection, the pool is tried again
		e.silent.Store(part, true)
	} else {
		e.silent.Delete(part)
	}
	for i, l := range leases {
		if errs[i] == nil {
			e.queue.index.Add(nameindex.Noted{Owner: l.Owner, Name: l.Name, Life: l.TTL + nameindex.Lag})
		}
	}
	return errs
}

// leftOf returns how long a lease would have lasted without its renewal, the last word of the answer; it
// is negative for one without an end.
func leftOf(answer string) time.Duration {
	ms, err := strconv.ParseInt(answer[strings.LastIndexByte(answer, ' ')+1:], 10, 64)
	if err != nil {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// shortened warns that the server would have ended a lease earlier than it was asked for. A program that
// renews with EXPIRE and does not compare the owner does that. A server whose clock was set forward and
// a replica that was promoted without the last renewal look the same, so the hold continues.
func (e *Engine) shortened(lock string, early time.Duration) {
	e.tasks.Go(func() { // ends when the logger returns
		e.cfg.Logger.Warn("another program has shortened the lease of a lock that is held here (or the server's clock was set, or a replica took over); if a lease ends before it is renewed, a second holder gets in",
			"key", lock, "error", fmt.Sprintf("%s would have ended %v too early", lock, early.Round(time.Millisecond)),
			"fix", "let that program compare the owner before it renews or deletes, or use other names")
	})
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
