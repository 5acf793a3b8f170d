// Package hold is the state of a holder's lease as a pure state machine: events and the time go in,
// actions come out. It reads no clock, starts no goroutine and does no I/O, so the simulator runs
// the code that ships.
//
// The deadline rule is that of the leases of Gray and Cheriton (1989): a holder counts its lease
// from before it sent the request that the engine acknowledged, and stops a margin earlier because
// of clock drift and scheduling delays.
package hold

import (
	"errors"
	"fmt"
	"time"
)

// Terms are the constant parameters of one hold.
type Terms struct {
	TTL    time.Duration // how long the engine excludes others after a renewal
	Margin time.Duration // how long before the end of the TTL the deadline is
	Grace  time.Duration // how long before the deadline the context ends
	Leased bool          // false: there is no lease, and renewals only verify the acquisition
}

// Kind is a kind of event.
type Kind int

// The kinds of events.
const (
	Tick     Kind = iota // time has passed: do what is due
	Look                 // is the hold over? Nothing else is done
	Renewed              // the engine acknowledged a renewal
	Failed               // a renewal failed temporarily
	Gone                 // the engine reports that the acquisition does not exist
	Released             // the holder releases; after the deadline that is a loss
)

// Event is an event of a hold.
type Event struct {
	Kind   Kind
	Sent   Instant // Renewed: a time from before the renewal was sent
	Cause  error   // Failed, Gone: the error of the engine
	Jitter float64 // Failed: a random number in [0, 1) that spreads the retries
}

// Action is what the caller must do.
type Action struct {
	Renew bool          // send a renewal now; answer with Renewed, Failed or Gone
	Lost  bool          // the hold has ended: notify the holder
	Stop  bool          // the maximum is reached: notify the holder; the hold lasts for the grace
	Wait  time.Duration // time until the next Tick; 0 means that none is needed
	Slack time.Duration // how much later than Wait the Tick may come
	Left  time.Duration // time until the deadline; the renewer sends the most urgent renewals first
	Limit time.Duration // with Renew: how long the attempt may take, so that another one can follow
}

// ErrDeadline is the cause of a loss without a report of the engine: the lease was about to expire
// and no renewal was acknowledged.
var ErrDeadline = errors.New("no renewal was acknowledged before the deadline")

// confirmAt is the part of a short lease after which it is renewed: 50 ms of 2 s.
const confirmAt = 40

// Hold is the state of one acquisition. It is not safe for concurrent use.
type Hold struct {
	terms    Terms
	until    time.Duration // when the maximum is reached, by the monotonic clock; 0 means never
	sent     Instant       // before the request that was last acknowledged
	ttl      time.Duration // how long the lease runs from sent
	failed   Instant       // when the last attempt failed
	pause    time.Duration // how long to wait after that; 0 if none failed
	err      error         // of the last failed attempt; after the end, why the hold was lost, or nil if it was not
	renewing bool          // whether a renewal is in progress
	stopping bool          // the maximum is reached
	ended    bool
}

// New returns a hold whose lease runs for ttl from sent. ttl may be shorter than terms.TTL, as
// after a hand-over; the first renewal extends it to terms.TTL.
func New(terms Terms, sent Instant, ttl time.Duration) Hold {
	return Hold{terms: terms, sent: sent, ttl: ttl}
}

// Limit sets the maximum of the hold, counted from now. 0 means none. It has no effect once the
// maximum is reached.
func (h *Hold) Limit(limit time.Duration, now Instant) {
	switch {
	case h.stopping:
	case limit == 0:
		h.until = 0
	default:
		h.until = now.Mono + limit
	}
}

// Step processes an event and returns what to do. After the end of the hold it always returns the
// zero Action.
func (h *Hold) Step(ev Event, now Instant) Action {
	if h.ended {
		return Action{}
	}
	h.note(ev, now)
	stop := h.reached(now)
	h.stopping = h.stopping || stop
	act := h.step(ev, now)
	act.Stop = stop
	return act
}

// reached reports whether the maximum is reached now and was not before. If the lease ended before
// that, which happens when the process was frozen, the hold is lost instead.
func (h *Hold) reached(now Instant) bool {
	if h.until == 0 || h.stopping || h.untilLimit(now) > 0 {
		return false
	}
	return !h.terms.Leased || h.life(now) >= h.untilLimit(now)
}

// note records the answer to a renewal.
func (h *Hold) note(ev Event, now Instant) {
	switch ev.Kind {
	case Renewed:
		h.renewing, h.pause, h.err = false, 0, nil
		// A renewal never revives a lease. So an acknowledged renewal proves that the lease did not
		// expire, even if the answer arrives after the deadline.
		h.sent, h.ttl = ev.Sent, h.terms.TTL
	case Failed:
		h.renewing, h.err = false, ev.Cause
		h.failed, h.pause = now, h.backoff(ev.Jitter)
	case Tick, Look, Gone, Released:
	}
}

func (h *Hold) step(ev Event, now Instant) Action {
	if ev.Kind == Gone {
		return h.lose(ev.Cause)
	}
	if h.terms.Leased && h.life(now) <= 0 {
		return h.lose(h.late())
	}
	if h.terms.Leased && h.stopping && h.untilLimit(now)+h.terms.Grace <= 0 {
		h.ended, h.err = true, nil
		return Action{}
	}
	switch ev.Kind {
	case Released:
		h.ended, h.err = true, nil
		return Action{}
	case Look:
		return Action{} // the caller of Look does not send renewals
	}
	return h.plan(now)
}

// late returns the error of a hold whose lease has run out.
func (h *Hold) late() error {
	if h.err == nil {
		return ErrDeadline
	}
	return fmt.Errorf("%w: %w", ErrDeadline, h.err)
}

func (h *Hold) lose(cause error) Action {
	h.ended, h.err = true, cause
	return Action{Lost: true}
}

// backoff returns the pause after a failure. It doubles with each consecutive failure, from a
// sixtieth to a twelfth of the lease, and is spread over half of that to the whole.
func (h *Hold) backoff(jitter float64) time.Duration {
	full := min(max(2*h.pause, h.ttl/60), h.ttl/12)
	return full/2 + time.Duration(jitter*float64(full/2))
}

// plan decides when to renew and when the next Tick is due.
func (h *Hold) plan(now Instant) Action {
	act := Action{Left: h.Left(now)}
	if !h.renewing {
		if due := h.due(now); due > 0 {
			act.Wait = due
			if h.pause == 0 {
				act.Slack = min(h.ttl/32, due)
			}
		} else {
			h.renewing, act.Renew, act.Limit = true, true, h.ttl/6
		}
	}
	if left := h.life(now); h.terms.Leased && (act.Wait == 0 || left < act.Wait+act.Slack) {
		act.Wait, act.Slack = left, 0
	}
	if left, ok := h.nextStop(now); ok && (act.Wait == 0 || left < act.Wait+act.Slack) {
		act.Wait, act.Slack = left, 0
	}
	return act
}

// untilLimit returns the time until the maximum is reached.
func (h *Hold) untilLimit(now Instant) time.Duration { return h.until - now.Mono }

// nextStop returns the time until the maximum is reached or, after that, until the grace is over.
// ok is false if neither is ahead.
func (h *Hold) nextStop(now Instant) (left time.Duration, ok bool) {
	switch {
	case h.until == 0:
		return 0, false
	case !h.stopping:
		return h.untilLimit(now), true
	}
	return h.untilLimit(now) + h.terms.Grace, h.terms.Leased
}

// due returns the time until the next renewal, which is sent at a third of the lease. A short lease is
// that of a hand-over, which its first renewal confirms: it is sent at once, unless the request is so
// young that the holder may release before it matters.
func (h *Hold) due(now Instant) time.Duration {
	third := h.ttl / 3
	if h.ttl < h.terms.TTL {
		third = h.ttl / confirmAt
	}
	return max(third-now.Since(h.sent), h.retry(now))
}

func (h *Hold) retry(now Instant) time.Duration {
	if h.pause == 0 {
		return 0
	}
	return h.pause - now.Since(h.failed)
}

// Terms returns the terms of the hold.
func (h *Hold) Terms() Terms { return h.terms }

// Renewing reports whether a renewal was asked for and not yet answered.
func (h *Hold) Renewing() bool { return h.renewing }

// Before returns at, or when the maximum is reached or, after that, the grace is over, if that is
// earlier.
func (h *Hold) Before(at time.Duration) time.Duration {
	switch {
	case h.until == 0 || h.stopping && !h.terms.Leased:
		return at
	case h.stopping:
		return min(at, h.until+h.terms.Grace)
	}
	return min(at, h.until)
}

// Stopping reports whether the hold has reached its maximum.
func (h *Hold) Stopping() bool { return h.stopping }

// Ended reports whether the hold is over.
func (h *Hold) Ended() bool { return h.ended }

// Cause returns why the hold was lost. It is nil before the end, after a release, and if the maximum
// ended the hold.
func (h *Hold) Cause() error {
	if !h.ended {
		return nil
	}
	return h.err
}

// life returns the time until the context of the hold ends. Once the maximum is reached, the context
// has ended, and life is the time until the deadline: the work stops meanwhile.
func (h *Hold) life(now Instant) time.Duration {
	if h.stopping {
		return h.Left(now)
	}
	return h.Left(now) - h.terms.Grace
}

// Left returns the time until the deadline, at which the hold must be over. It does not include the
// grace. Without a lease it is 0.
func (h *Hold) Left(now Instant) time.Duration {
	if !h.terms.Leased {
		return 0
	}
	return h.ttl - h.terms.Margin - now.Since(h.sent)
}

// Part returns Left as a part of the lease, at least 0. Without a lease it is 0.
func (h *Hold) Part(now Instant) float64 {
	if !h.terms.Leased || h.ttl <= 0 {
		return 0
	}
	return max(0, float64(h.Left(now))/float64(h.ttl))
}

// Fresh reports whether a grant can be used without confirmation: at least half of its lease is
// left.
func (h *Hold) Fresh(now Instant) bool {
	if !h.terms.Leased {
		return true
	}
	if now.Since(h.sent) < 0 {
		return false // a time in the future proves nothing
	}
	left := h.ttl - now.Since(h.sent)
	if h.ttl < h.terms.TTL {
		left = h.life(now)
	}
	return left >= h.ttl/2
}
