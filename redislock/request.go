package redislock

import (
	"context"
	"fmt"
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
		r := acq.try(limited, w, join)
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

// try makes one try of a request. One of the common kind tells the script so, which then
// takes a free name at once, and may share a script with others.
func (acq *acquirer) try(ctx context.Context, w *waiter, join bool) redisconn.Reply {
	limit := attemptLimit(w.req.TTL)
	common := w.req.Mode == driver.Exclusive && w.req.MinHold == 0 && !acq.cfg.Quarantine
	life := redisfmt.Millis(w.req.TTL)
	single := func() redisconn.Reply {
		until, late := acq.until(ctx, limit)
		args := []string{w.owner, w.desc, until, letters(w, join)}
		if common {
			args = append(args, life, acq.retention)
		}
		r := acq.attempt(ctx, w, acq.call(acquireScript, w.lock, args...))
		w.unanswered(r.Err, late)
		return r
	}
	if !common {
		return single()
	}
	if alone := acq.batcher.tryStart(); alone || !acq.batcher.canBatch() {
		if alone {
			defer acq.batcher.finishCall()
		}
		return single()
	}
	v := acq.batcher.send(redisconn.WithDeadline(ctx, limit), &pendingOp{letter: 'a', lock: w.lock, limit: limit, args: []string{w.owner, w.desc, life}})
	switch v.letter {
	case 't':
		return redisconn.Reply{Text: "taken " + v.now + " " + v.now}
	case 's', refused: // it needs a look of its own, or was refused with others
		return single()
	}
	w.unanswered(v.err, v.late)
	return redisconn.Reply{Err: v.err}
}

// settleRequest forgets a request that was refused. Where an earlier try of its
// own may still be on its way, it makes sure that nothing becomes of it.
func (acq *acquirer) settleRequest(w *waiter, a answer) {
	switch {
	case a.err == nil && (a.status == "granted" || a.status == "queued"):
	case w.late > 0 || a.status == "" || a.status == "queued":
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

// parseAcquire reads what the acquire script said. "taken" is its shortest answer.
func parseAcquire(w *waiter, r redisconn.Reply, sent time.Time) answer {
	in := redisfmt.Words{Rest: r.Text}
	a := answer{status: in.Next(), replicas: r.Replicas}
	a.sample = clockSample{sent: sent, server: in.Int()}
	switch a.status {
	case "taken":
		token := in.Int()
		a.status, a.grant = "granted", driver.Grant{Owner: w.owner, Token: token, Floor: token, Sent: sent, TTL: w.req.TTL}
	case "granted":
		a.grant = driver.Grant{Owner: w.owner, Token: in.Int(), Floor: in.Int(), Sent: sent, TTL: w.req.TTL}
	case "queued":
		w.ticket = in.Next()
		a.position = int(in.Int())
		a.blocked = readBlocked(&in)
		a.err = a.blocked.unknown()
	case "held":
		a.blocked = readBlocked(&in)
		a.err = a.blocked.unknown()
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

// letters are what a request asks for beside the lock, if it joins the queue.
func letters(w *waiter, join bool) string {
	switch {
	case !join:
		return "-"
	case w.req.OnWait == nil:
		return "w"
	default:
		return "wp"
	}
}
