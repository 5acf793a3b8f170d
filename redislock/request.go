package redislock

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limits"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
)

// answer is the parsed reply of the acquire or adopt script.
type answer struct {
	status   string // the first word; empty if the reply was malformed
	grant    driver.Grant
	replicas int
	blocked  blockedInfo
	position int
	sample   clockSample
	err      error
}

// errLate is returned for a request that arrived after its deadline, or whose client misjudges the
// server's clock. It has had no effect.
var errLate = fmt.Errorf("%w: a request reached the server after its deadline", driver.ErrUnavailable)

// request runs the acquire or adopt script until the server answers. Transient errors are retried
// until limited ends, which is ctx with a deadline. All attempts have the same owner, so that one
// that succeeded without an answer is found. A request that fails is withdrawn.
func (acq *acquirer) request(ctx, limited context.Context, w *waiter, join bool) answer {
	if join {
		acq.queue.register(w)
	}
	acq.client.askTime(limited)
	pause := newBackoff()
	var why error
	lates, attemptCtx := 0, limited
	for {
		sent := time.Now()
		if w.asked.IsZero() {
			w.asked = sent
		}
		r := acq.try(attemptCtx, w, join)
		if r.Err == nil {
			a := parseAcquire(w, r, sent)
			acq.client.clock.note(a.sample, a.status == "late")
			if a.status == "late" && limited.Err() == nil && acq.client.closed.Err() == nil {
				if lates++; lates > 1 { // the time just received did not help
					pause.Wait(limited)
				}
				continue // nothing to withdraw
			}
			if a.status == "ended" && limited.Err() == nil && acq.client.closed.Err() == nil {
				acq.queue.unregister(w) // an attempt without an answer succeeded, and was broken
				if w.owner = newOwner(); join {
					acq.queue.register(w)
				}
				continue
			}
			if a.status == "quarantine" {
				acq.server.invalidate() // another server may be the master
			}
			acq.settleRequest(w, a)
			return a
		}
		why, attemptCtx = cause(why, r.Err), next(attemptCtx, limited, r.Err)
		acq.server.invalidate()
		if limited.Err() == nil && acq.client.closed.Err() == nil && passing(r.Err) {
			end, _ := limited.Deadline()
			if retry.Sleep(ctx, min(pause.Next(), time.Until(end))); limited.Err() == nil {
				continue
			}
		}
		// The script may have run, or may still be on its way.
		patience := silentPatience
		if ctx.Err() == nil {
			patience = 0 // the caller has waited long enough
		}
		acq.withdraw(w, patience)
		return answer{err: unavailable(why)}
	}
}

// next returns the context of the attempt after one that failed: it uses a new connection if the last one
// was not answered, and the pool again after one on a new connection.
func next(last, limited context.Context, failed error) context.Context {
	if _, refused := redisconn.Refused(failed); refused || redisconn.IsFresh(last) {
		return limited
	}
	return redisconn.Fresh(limited)
}

// try makes one attempt of a request. A common request (exclusive, without a minimum hold or
// quarantine) may share a script with others, and the script takes a free name without further
// checks.
func (acq *acquirer) try(ctx context.Context, w *waiter, join bool) redisconn.Reply {
	limit := attemptLimit(w.req.TTL)
	if w.from != nil {
		until, late := acq.client.until(ctx, limit)
		r := acq.attempt(ctx, w, acq.client.newCall(adoptScript, w.lock, w.owner, w.desc, until, w.from.Owner, redisfmt.Decimal(w.from.Token)))
		w.unanswered(r.Err, late)
		return r
	}
	common := w.req.Mode == driver.Exclusive && w.req.MinHold == 0 && !acq.client.cfg.Quarantine
	life := redisfmt.Millis(w.req.TTL)
	single := func() redisconn.Reply {
		until, late := acq.client.until(ctx, limit)
		args := []string{w.owner, w.desc, until, acq.letters(w, join)}
		if common {
			args = append(args, life, acq.client.retention)
		}
		r := acq.attempt(ctx, w, acq.client.newCall(acquireScript, w.lock, args...))
		w.unanswered(r.Err, late)
		return r
	}
	if !common {
		return single()
	}
	if alone := acq.batcher.tryStart(); alone || !acq.batcher.canBatch() || redisconn.IsFresh(ctx) {
		if alone {
			defer acq.batcher.finishCall()
		}
		return single()
	}
	v := acq.batcher.send(redisconn.WithDeadline(ctx, limit), &pendingOp{letter: 'a', lock: w.lock, limit: limit, args: []string{w.owner, w.desc, life}})
	switch v.letter {
	case 't':
		return redisconn.Reply{Text: "taken " + v.now + " " + v.now}
	case 's', refused: // not decided in the batch
		return single()
	}
	w.unanswered(v.err, v.late)
	return redisconn.Reply{Err: v.err}
}

// settleRequest removes a request that was refused. If an earlier attempt may still be on its way,
// it withdraws the request, so that the attempt has no effect.
func (acq *acquirer) settleRequest(w *waiter, a answer) {
	switch {
	case a.err == nil && (a.status == "granted" || a.status == "queued"):
	case w.late > 0 || a.status == "" || a.status == "queued":
		acq.withdraw(w, 0)
	default:
		acq.queue.unregister(w)
	}
}

// attempt makes one call with a time limit that leaves time for another call before the lease it
// may have obtained expires.
func (acq *acquirer) attempt(ctx context.Context, w *waiter, c redisconn.Call) redisconn.Reply {
	c.Replicas = acq.client.cfg.MinReplicas
	return acq.client.conn.Eval(redisconn.WithDeadline(ctx, attemptLimit(w.req.TTL)), []redisconn.Call{c})[0]
}

// parseAcquire parses the reply of the acquire script. "taken" is its shortest form.
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
		a.err = limits.Differ(w.req.Name, int(in.Int()), w.req.Limit)
	case "quarantine":
		a.blocked = blockedInfo{next: in.Millis(), why: whyQuarantine}
		if !w.req.Wait {
			a.err = a.blocked.trouble()
		}
	case "late", "ended":
		a.err = errLate
	case "gone":
		a.err = fmt.Errorf("%w: %q", driver.ErrNotHeld, w.req.Name)
	case "unlike":
		a.err = limits.Unlike(w.req.Name, int(in.Int()), int(in.Int()))
	default:
		in.Bad = true
	}
	if in.Bad {
		return answer{err: malformed(r.Text)}
	}
	return a
}

// letters returns the flags of the acquire script: w to join the queue, p to report the position, and
// the client's own time.
func (acq *acquirer) letters(w *waiter, join bool) string {
	switch {
	case !join:
		return "-"
	case w.req.OnWait == nil:
		return "w" + acq.client.own.stamp(time.Now())
	default:
		return "wp" + acq.client.own.stamp(time.Now())
	}
}

// malformed is the error for a reply that none of our scripts returns.
func malformed(text string) error {
	return fmt.Errorf("%w: unexpected reply of a lock script: %.100q", driver.ErrUnavailable, text)
}

// blockedInfo is what the scripts report about a name that is not free.
type blockedInfo struct {
	next time.Duration // until the state may change without an event; negative: unknown
	why  string        // what is in the way if it is not one of our holders
	text string        // the holder
}

// The values of blockedInfo.why, as the scripts return them.
const (
	whyForeign    = "f"
	whyQuarantine = "q"
	whyMinimum    = "m"
)

func readBlocked(w *redisfmt.Words) blockedInfo {
	return blockedInfo{next: w.Millis(), why: w.Next(), text: w.Rest}
}

// unknown returns an error if the lock is held in a format that this version cannot read.
func (o blockedInfo) unknown() error {
	if o.why != whyForeign || !strings.HasPrefix(o.text, "fencelock:") {
		return nil
	}
	held, _, _ := strings.Cut(o.text, " ")
	return fmt.Errorf("%w: the lock is held in format %s of another fencelock version, and this version reads only %s; use one version", driver.ErrConfig, printable(held), format)
}

// trouble returns an error if the server grants nothing because of the quarantine.
func (o blockedInfo) trouble() error {
	if o.why != whyQuarantine {
		return nil
	}
	return fmt.Errorf("%w: the server may have lost its data, and grants nothing until %s",
		driver.ErrUnavailable, time.Now().Add(o.next).Format(time.RFC3339))
}

// held returns the error that says what is in the way.
func (o blockedInfo) held(name string) *driver.HeldError {
	held := &driver.HeldError{Name: name}
	if o.next >= 0 {
		held.Until = time.Now().Add(o.next)
	}
	switch o.why {
	case whyForeign:
		held.Owner = printable(o.text)
	case whyMinimum:
		held.Owner, held.Note = "nobody", "the minimum hold of its last holder has not ended"
	default:
		if h, ok := parseHolder(strings.TrimPrefix(o.text, holderPrefix)); ok {
			held.Owner, held.Identity, held.Since = h.Owner, h.Identity, h.Since
		}
	}
	return held
}

// printable makes text of another program fit for one line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
}

// describe returns a request's description, which the scripts store beside its owner.
func describe(client string, req driver.Request) string {
	return fmt.Sprintf("%s %s %d %d %d %d %s", client, redisfmt.Letter(req.Mode), req.Limit, req.Units(),
		redisfmt.CeilMillis(req.TTL), redisfmt.CeilMillis(req.MinHold), redisfmt.Identity(req.Identity))
}

// parseHolder parses "owner token desc". The token is the time of the grant, unless the server's
// clock was set back.
func parseHolder(text string) (h driver.Holder, ok bool) {
	w := redisfmt.Words{Rest: text}
	h.Owner, h.Token = w.Next(), w.Int()
	h.Since = time.UnixMicro(h.Token)
	var req driver.Request
	req, h.Identity = readDesc(&w)
	h.Lease, h.Weight = req.TTL, req.Weight
	return h, !w.Bad
}

// readDesc parses the result of describe. Only requests with a limit have a weight.
func readDesc(w *redisfmt.Words) (req driver.Request, id driver.Identity) {
	w.Next() // the client
	req.Mode = redisfmt.ModeOf(w.Next())
	req.Limit, req.Weight = int(w.Int()), int(w.Int())
	if req.Limit == 0 {
		req.Weight = 0
	}
	req.TTL = w.Millis()
	w.Int() // the minimum hold
	return req, w.Identity()
}
