//go:build unix

package cli

import (
	"fmt"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// view is driver.Status as --json prints it; docs/cli-json.md documents it.
type view struct {
	Name      string       `json:"name"`                // as it was acquired, whatever is in it
	Mode      string       `json:"mode"`                // a word of modeOf
	Limit     int          `json:"limit,omitempty"`     // that in force, not that somebody asked with
	NotBefore stamp        `json:"not_before,omitzero"` // end of a minimum hold
	Holders   []holderView `json:"holders"`             // oldest first; never null
	Waiters   []waiterView `json:"waiters"`             // next first; never null
	Trouble   string       `json:"trouble,omitempty"`   // why this may not be all, or not be so any more
}

// identityView is driver.Identity.
type identityView struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"` // on Host, in its own container perhaps
	Note  string `json:"note"`
	Trace string `json:"trace,omitempty"` // the traceparent of the request
}

// holderView is driver.Holder.
type holderView struct {
	Owner string `json:"owner"` // unique to this acquisition
	Token int64  `json:"token"` // 0 for a foreign one
	identityView
	Since   stamp `json:"since"`              // by the clock of the engine; null if unknown
	TTL     int64 `json:"ttl_ms"`             // what is left; 0 for a lock that ends with its process
	Lease   int64 `json:"lease_ms,omitempty"` // of so much
	Weight  int   `json:"weight,omitempty"`   // how much of the limit it takes
	Foreign bool  `json:"foreign"`            // not one of ours, such as flock(1) or a plain SET NX
}

// waiterView is driver.Waiter.
type waiterView struct {
	Owner string `json:"owner"` // becomes that of its acquisition
	identityView
	Since    stamp `json:"since"`
	Position int   `json:"position"`         // 1 is next
	Weight   int   `json:"weight,omitempty"` // how much of the limit it asks for
}

// viewOf never leaves an array nil, which would print as null.
func viewOf(s driver.Status) view {
	v := view{
		Name: s.Name, Mode: modeOf(s), Limit: s.Limit, NotBefore: stamp(s.NotBefore),
		Holders: make([]holderView, 0, len(s.Holders)),
		Waiters: make([]waiterView, 0, len(s.Waiters)),
	}
	if s.Trouble != nil {
		v.Trouble = termtext.Line(s.Trouble.Error())
	}
	for _, h := range s.Holders {
		v.Holders = append(v.Holders, holderView{
			Owner: h.Owner, Token: h.Token, identityView: identityView(h.Identity),
			Since: stamp(h.Since), TTL: h.TTL.Milliseconds(), Lease: h.Lease.Milliseconds(), Weight: h.Weight, Foreign: h.Foreign,
		})
	}
	for _, w := range s.Waiters {
		v.Waiters = append(v.Waiters, waiterView{
			Owner: w.Owner, identityView: identityView(w.Identity), Since: stamp(w.Since), Position: w.Position, Weight: w.Weight,
		})
	}
	return v
}

// modeOf says in one word whom a name lets in. A name with trouble and nobody in sight is
// not called free: somebody may decide by that.
func modeOf(s driver.Status) string {
	switch {
	case len(s.Holders) > 0 || len(s.Waiters) > 0:
		return s.Mode.String()
	case s.Trouble != nil:
		return "unknown"
	case !s.NotBefore.IsZero():
		return "closed"
	}
	return "free"
}

// modeLimit is the mode with its limit, such as "shared/3". A holder that takes more than one of
// the limit has its weight in it, such as "shared:2/3".
func modeLimit(s driver.Status, weight int) string {
	switch {
	case s.Limit == 0:
		return modeOf(s)
	case weight > 1:
		return fmt.Sprintf("%s:%d/%d", modeOf(s), weight, s.Limit)
	}
	return fmt.Sprintf("%s/%d", modeOf(s), s.Limit)
}
