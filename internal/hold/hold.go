// Package hold contains what a holder knows about its lease, as a pure state machine: events and
// the time go in, actions come out. It reads no clock, starts no goroutine and does no I/O, so a
// seeded simulator runs the code that ships.
//
// The deadline rule is that of Gray and Cheriton's leases (1989): a holder counts its lease from
// before it sent the request that the engine acknowledged, and stops a margin early for clock drift
// and late timers.
package hold

import (
	"errors"
	"fmt"
	"time"
)

// Terms are the fixed conditions of one hold.
type Terms struct {
	TTL    time.Duration // how long the engine keeps others out after a renewal
	Margin time.Duration // how long before that the hold ends
	Grace  time.Duration // how long before the deadline the hold's context ends
	Leased bool          // false: the engine has no lease, renewals only verify
}

// Kind is a kind of event.
type Kind int

// The kinds of events.
const (
	Tick     Kind = iota // time has passed, and what is due is to be done
	Look                 // is the hold over? Nothing else is asked for
	Renewed              // the engine acknowledged a renewal
	Failed               // a renewal failed for a passing reason
	Gone                 // the engine says that the acquisition does not stand
	Released             // the holder lets go; after the deadline that is a loss
)

// Event is something that happened to a hold.
type Event struct {
	Kind   Kind
	Sent   Instant // Renewed: before the renewal was sent
	Cause  error   // Failed, Gone: what the engine said
	Jitter float64 // Failed: a random number in [0, 1) that spreads the retries
}

// Action is what a hold asks for.
type Action struct {
	Renew bool          // send a renewal now; answer with Renewed, Failed or Gone
	Lost  bool          // the hold ends here: tell the holder
	Wait  time.Duration // until the next Tick; 0 means that none is needed
	Slack time.Duration // how much later than Wait is just as good
	Left  time.Duration // until the deadline, to renew the most urgent first
	Limit time.Duration // with Renew: how long the attempt may take, so that another one can follow
}

// ErrDeadline is the cause of a loss that nobody announced: the lease was about
// to run out and no renewal had come through.
var ErrDeadline = errors.New("no renewal was acknowledged before the deadline")

// Hold is the state of one acquisition. It is not safe for concurrent use.
type Hold struct {
	terms    Terms
	sent     Instant       // before the request that was last acknowledged
	ttl      time.Duration // how long the lease runs from sent
	failed   Instant       // when the last attempt failed
	pause    time.Duration // how long to wait after that; 0 when none failed
	lastErr  error         // what the last failed attempt said
	renewing bool          // a renewal is under way
	ended    bool
	cause    error // why it ended; nil after a release
}

// New returns a hold whose lease runs for ttl from sent. It may be shorter than
// terms.TTL, as a hand-over grants: the first renewal makes it whole.
func New(terms Terms, sent Instant, ttl time.Duration) Hold {
	return Hold{terms: terms, sent: sent, ttl: ttl}
}

// Step tells the hold that ev happened, and returns what to do. After the end it
// returns the zero Action, whatever happens.
func (h *Hold) Step(ev Event, now Instant) Action {
	if h.ended {
		return Action{}
	}
	switch ev.Kind {
	case Renewed:
		h.renewing, h.pause, h.lastErr = false, 0, nil
		// A renewal never revives a lease, so one that was acknowledged proves
		// that the lease did not lapse even if this news comes after the deadline.
		h.sent, h.ttl = ev.Sent, h.terms.TTL
	case Failed:
		h.renewing, h.lastErr = false, ev.Cause
		h.failed, h.pause = now, h.backoff(ev.Jitter)
	case Gone:
		return h.end(ev.Cause)
	case Tick, Look, Released:
	}
	if h.terms.Leased && h.life(now) <= 0 {
		return h.end(h.late())
	}
	switch ev.Kind {
	case Released:
		h.ended = true
		return Action{}
	case Look:
		return Action{} // whoever looks would not send the renewal that a plan may ask for
	}
	return h.plan(now)
}

// late is why a hold whose lease ran out is lost.
func (h *Hold) late() error {
	if h.lastErr == nil {
		return ErrDeadline
	}
	return fmt.Errorf("%w: %w", ErrDeadline, h.lastErr)
}

func (h *Hold) end(cause error) Action {
	h.ended, h.cause = true, cause
	return Action{Lost: true}
}

// backoff doubles the pause with every failure in a row, from a sixtieth to a
// twelfth of the lease, and spreads it over a half to the whole of that.
func (h *Hold) backoff(jitter float64) time.Duration {
	full := min(max(2*h.pause, h.ttl/60), h.ttl/12)
	return full/2 + time.Duration(jitter*float64(full/2))
}

// plan decides when to renew, and how long to sleep until then.
func (h *Hold) plan(now Instant) Action {
	act := Action{Left: h.Left(now)}
	if !h.renewing {
		if due := h.due(now); due > 0 {
			act.Wait = due
			if h.pause == 0 {
				act.Slack = h.ttl / 32
			}
		} else {
			h.renewing, act.Renew, act.Limit = true, true, h.ttl/6
		}
	}
	if left := h.life(now); h.terms.Leased && (act.Wait == 0 || left < act.Wait+act.Slack) {
		act.Wait, act.Slack = left, 0
	}
	return act
}

// due is how long after now the next renewal is to be sent: at a third of the
// lease. Margin and grace are meant for a whole one and may take half of a short
// one, so that a third of what they leave of it counts then.
func (h *Hold) due(now Instant) time.Duration {
	third := h.ttl / 3
	if h.ttl < h.terms.TTL {
		third = (h.ttl - h.terms.Margin - h.terms.Grace) / 3
	}
	return max(third-now.Since(h.sent), h.retry(now))
}

func (h *Hold) retry(now Instant) time.Duration {
	if h.pause == 0 {
		return 0
	}
	return h.pause - now.Since(h.failed)
}

// Terms returns the terms that the hold was made with.
func (h *Hold) Terms() Terms { return h.terms }

// Renewing reports whether a renewal was asked for and has not been answered.
func (h *Hold) Renewing() bool { return h.renewing }

// Ended reports whether the hold is over.
func (h *Hold) Ended() bool { return h.ended }

// Cause returns why a hold was lost; nil while it stands and after a release.
func (h *Hold) Cause() error { return h.cause }

// life is how long after now the hold's context ends.
func (h *Hold) life(now Instant) time.Duration { return h.Left(now) - h.terms.Grace }

// Left returns how long after now the deadline is: the moment by which the hold
// must be over, not counting the grace. Without a lease it is 0.
func (h *Hold) Left(now Instant) time.Duration {
	if !h.terms.Leased {
		return 0
	}
	return h.ttl - h.terms.Margin - now.Since(h.sent)
}

// Fresh reports whether a grant is young enough to build on: half of its lease
// lies ahead. An older one must be confirmed first.
func (h *Hold) Fresh(now Instant) bool {
	if !h.terms.Leased {
		return true
	}
	if now.Since(h.sent) < 0 {
		return false // a stamp of a time to come proves nothing
	}
	left := h.ttl - now.Since(h.sent)
	if h.ttl < h.terms.TTL {
		left = h.life(now)
	}
	return left >= h.ttl/2
}
