package redislock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/words"
)

// answer is what the acquire script said.
type answer struct {
	status   string // granted, queued, held or quarantine; empty if err is set
	grant    driver.Grant
	replicas int
	outlook  outlook
	position int
	sample   sample
	err      error
}

func (a answer) held(w *waiter) *driver.HeldError {
	if a.status == "" {
		return nil
	}
	return a.outlook.held(w.req.Name)
}

// request runs the acquire script until it answers. Passing errors are tried
// again, for no longer than GiveUp, under the same owner: a try that worked
// though its answer was lost is found. Without success it leaves no trace.
func (e *Engine) request(ctx context.Context, w *waiter, join bool) answer {
	if join {
		e.register(w)
	}
	limited := within(ctx, e.cfg.GiveUp)
	pause, again := newBackoff(), false
	var why error
	for {
		sent := time.Now()
		if !again {
			w.asked = sent
		}
		r := e.try(limited, w, join, again)
		if r.Err == nil {
			a := e.parseAcquire(w, r, sent)
			if a.status == "quarantine" {
				e.fitness.doubt() // another server may be the master
			}
			e.settleRequest(w, a, again)
			return a
		}
		again, why = true, cause(why, r.Err)
		e.fitness.doubt()
		if limited.Err() == nil && e.closed.Err() == nil && passing(r.Err) {
			end, _ := limited.Deadline()
			if sleep(ctx, min(pause.NextBackOff(), time.Until(end))); limited.Err() == nil {
				continue
			}
		}
		// The script may have begun, or may still be on its way.
		patience := withdrawPatience
		if ctx.Err() == nil {
			patience = 0 // the caller was kept waiting long enough
		}
		e.withdraw(w, patience, true)
		return answer{err: unavailable(why)}
	}
}

// try makes one try of a request. Most may take the fast way of the acquire
// script, and share a script with others.
func (e *Engine) try(ctx context.Context, w *waiter, join, again bool) Reply {
	slow := func(again bool) Reply {
		return e.attempt(ctx, w, e.asking(asked(join, again), acquireScript, w.keys, w.owner, w.desc))
	}
	if again || e.cfg.Quarantine || w.req.Mode != driver.Exclusive || w.req.AtLeast > 0 {
		return slow(again)
	}
	life := millis(w.req.TTL)
	if alone := e.gather.board(); alone || !e.together() {
		if alone {
			defer e.land()
		}
		return e.attempt(ctx, w, e.asking(asked(join, false), acquireScript, w.keys, w.owner, w.desc, life, e.retention))
	}
	limit := attemptLimit(w.req.TTL)
	v := e.send(within(ctx, limit), &errand{keys: w.keys, limit: limit, args: []string{"fencelock " + w.owner + " ", w.desc, life}})
	switch v.letter {
	case 't':
		return Reply{Text: "taken " + v.now}
	case 's':
		return slow(false)
	case refused:
		return slow(true)
	}
	return Reply{Err: v.err}
}

// settleRequest forgets a request that was refused. Where an earlier try of its
// own may still be on its way, it makes sure that nothing becomes of it.
func (e *Engine) settleRequest(w *waiter, a answer, again bool) {
	switch {
	case a.err == nil && (a.status == "granted" || a.status == "queued"):
	case again || a.status == "":
		e.withdraw(w, 0, again)
	default:
		e.unregister(w)
	}
}

// attempt makes one call under an attempt limit.
func (e *Engine) attempt(ctx context.Context, w *waiter, c Call) Reply {
	c.Replicas = e.cfg.MinReplicas
	return e.conn.Eval(within(ctx, attemptLimit(w.req.TTL)), []Call{c})[0]
}

func (e *Engine) parseAcquire(w *waiter, r Reply, sent time.Time) answer {
	in := words.Words{Rest: r.Text}
	a := answer{status: in.Next(), replicas: r.Replicas}
	a.sample = sample{sent: sent, server: in.Int()}
	switch a.status {
	case "taken":
		token := a.sample.server
		a.status, a.grant = "granted", driver.Grant{Owner: w.owner, Token: token, Floor: token, Sent: sent, TTL: w.req.TTL}
	case "granted":
		a.grant = driver.Grant{Owner: w.owner, Token: in.Int(), Floor: in.Int(), Sent: sent, TTL: w.req.TTL}
	case "queued":
		w.ticket = in.Next()
		a.position = int(in.Int())
		a.outlook = readOutlook(&in)
	case "held":
		a.outlook = readOutlook(&in)
	case "limit":
		a.err = driver.LimitError(w.req.Name, int(in.Int()), w.req.Limit)
	case "quarantine":
		a.outlook = outlook{next: in.Millis(), why: whyQuarantine}
		if !w.req.Wait {
			a.err = quarantined(a.outlook.next)
		}
	default:
		in.Bad = true
	}
	if in.Bad {
		return answer{err: malformed(r.Text)}
	}
	return a
}

func quarantined(left time.Duration) error {
	return fmt.Errorf("%w: the server may have forgotten its locks and grants nothing until %s",
		driver.ErrUnavailable, time.Now().Add(left).Format(time.RFC3339))
}

// asked is what a request asks for if it joins the queue, and if an earlier try
// may have worked.
func asked(join, again bool) (a asks) {
	if join {
		a |= toWait
	}
	if again {
		a |= askedOnce
	}
	return a
}

// millis formats a time for a script.
func millis(d time.Duration) string { return strconv.FormatInt(ceilMillis(d), 10) }
