package redislock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
)

// answer is what the acquire script said.
type answer struct {
	status   string // granted, queued, held, limit, quarantine or late; empty if the answer made no sense
	grant    driver.Grant
	replicas int
	blocked  blockedInfo
	position int
	sample   clockSample
	err      error
}

// errLate is the answer to a request that arrived after its time, or whose client
// is wrong about the server's clock. It has had no effect.
var errLate = fmt.Errorf("%w: a request arrived too late to be served", driver.ErrUnavailable)

// request runs the acquire script until it answers. Passing errors are tried
// again, for no longer than RetryTimeout, under the same owner: a try that worked
// though its answer was lost is found. Without success it leaves no trace.
func (acq *acquirer) request(ctx context.Context, w *waiter, join bool) answer {
	if join {
		acq.queue.register(w)
	}
	acq.askTime(ctx)
	limited := redisconn.WithDeadline(ctx, acq.cfg.RetryTimeout)
	pause, again := newBackoff(), false
	var why error
	for {
		sent := time.Now()
		if !again { // a grant cannot be older than the first try; it may be that one's
			w.asked = sent
		}
		r := acq.try(limited, w, join, again)
		if r.Err == nil {
			a := parseAcquire(w, r, sent)
			acq.clock.note(a.sample, a.status == "late")
			if a.status == "late" && limited.Err() == nil && acq.closed.Err() == nil {
				continue // with what the clock says now, and nothing to look for
			}
			if a.status == "quarantine" {
				acq.fitness.forget() // another server may be the master
			}
			acq.settleRequest(w, a)
			return a
		}
		again, why = true, cause(why, r.Err)
		acq.fitness.forget()
		if limited.Err() == nil && acq.closed.Err() == nil && passing(r.Err) {
			end, _ := limited.Deadline()
			if retry.Sleep(ctx, min(pause.Next(), time.Until(end))); limited.Err() == nil {
				continue
			}
		}
		// The script may have begun, or may still be on its way.
		patience := withdrawPatience
		if ctx.Err() == nil {
			patience = 0 // the caller was kept waiting long enough
		}
		acq.withdraw(w, patience)
		return answer{err: unavailable(why)}
	}
}

// try makes one try of a request. Most may take the fast way of the acquire
// script, and share a script with others.
func (acq *acquirer) try(ctx context.Context, w *waiter, join, again bool) redisconn.Reply {
	limit := attemptLimit(w.req.TTL)
	slow := func(again bool, fast ...string) redisconn.Reply {
		until, late := acq.until(ctx, limit)
		args := append([]string{w.owner, w.desc, until}, fast...)
		r := acq.attempt(ctx, w, acq.flaggedCall(asked(w, join, again), acquireScript, w.keys, args...))
		w.unanswered(r.Err, late)
		return r
	}
	shared := w.req.Mode == driver.Shared
	// The way for free locks looks for no earlier try, no marker of the quarantine and no
	// weights, and begins no minimum hold. On a name that was waited for it rarely leads
	// to the lock.
	longWay := w.req.Weight > 1 || acq.cluster() // which sees what has not moved yet with its slot
	if again || acq.cfg.Quarantine || shared && longWay || w.req.MinHold > 0 || acq.queue.isHot(w.req.Name) {
		return slow(again)
	}
	life := redisfmt.Millis(w.req.TTL)
	if shared {
		return slow(false, life, acq.retention, strconv.Itoa(w.req.Limit))
	}
	if alone := acq.batcher.tryStart(); alone || !acq.batcher.canBatch() {
		if alone {
			defer acq.batcher.finishCall()
		}
		return slow(false, life, acq.retention)
	}
	v := acq.batcher.send(redisconn.WithDeadline(ctx, limit), &pendingOp{keys: w.keys, limit: limit, args: []string{"fencelock " + w.owner + " ", w.desc, life}})
	switch v.letter {
	case 't':
		return redisconn.Reply{Text: "taken " + v.now}
	case 's':
		return slow(false)
	case 'l':
		return redisconn.Reply{Text: "late " + v.now}
	case refused: // perhaps for the sake of another name, after it had begun with this one
		return slow(true)
	}
	w.unanswered(v.err, v.late)
	return redisconn.Reply{Err: v.err}
}

// settleRequest forgets a request that was refused. Where an earlier try of its
// own may still be on its way, it makes sure that nothing becomes of it.
func (acq *acquirer) settleRequest(w *waiter, a answer) {
	switch {
	case a.err == nil && (a.status == "granted" || a.status == "queued"):
	case w.late > 0 || a.status == "":
		acq.withdraw(w, 0)
	default:
		acq.queue.unregister(w)
	}
}

// attempt makes one call under an attempt limit, so that there is time for another one
// before the lease that it may have got is over.
func (acq *acquirer) attempt(ctx context.Context, w *waiter, c redisconn.Call) redisconn.Reply {
	c.Replicas = acq.cfg.MinReplicas
	return acq.conn.Eval(redisconn.WithDeadline(ctx, attemptLimit(w.req.TTL)), []redisconn.Call{c})[0]
}

// parseAcquire reads what the acquire script said. "taken" is the answer of the way for
// free locks, whose token is the server's time.
func parseAcquire(w *waiter, r redisconn.Reply, sent time.Time) answer {
	in := redisfmt.Words{Rest: r.Text}
	a := answer{status: in.Next(), replicas: r.Replicas}
	a.sample = clockSample{sent: sent, server: in.Int()}
	switch a.status {
	case "taken":
		token := a.sample.server
		a.status, a.grant = "granted", driver.Grant{Owner: w.owner, Token: token, Floor: token, Sent: sent, TTL: w.req.TTL}
	case "granted":
		a.grant = driver.Grant{Owner: w.owner, Token: in.Int(), Floor: in.Int(), Sent: sent, TTL: w.req.TTL}
	case "queued":
		w.ticket = in.Next()
		a.position = int(in.Int())
		a.blocked = readBlocked(&in)
	case "held":
		a.blocked = readBlocked(&in)
	case "limit":
		a.err = driver.LimitError(w.req.Name, int(in.Int()), w.req.Limit)
	case "quarantine":
		a.blocked = blockedInfo{next: in.Millis(), why: whyQuarantine}
		if !w.req.Wait {
			a.err = a.blocked.trouble()
		}
	case "late":
		a.err = errLate
	default:
		in.Bad = true
	}
	if in.Bad {
		return answer{err: malformed(r.Text)}
	}
	return a
}

// asked is what a request asks for if it joins the queue, and if an earlier try
// may have worked.
func asked(w *waiter, join, again bool) (a acquireFlags) {
	if join {
		a |= toWait
	}
	if join && w.req.OnWait != nil {
		a |= toPlace
	}
	if again {
		a |= askedOnce
	}
	return a
}
