//go:build unix

package cli

import (
	"fmt"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// view is driver.Status as --json prints it. docs/cli-json.md documents it.
type view struct {
	Name      string       `json:"name"`                // exactly as it was acquired
	Mode      string       `json:"mode"`                // see modeOf
	Limit     int          `json:"limit,omitempty"`     // the limit in force
	NotBefore stamp        `json:"not_before,omitzero"` // end of a minimum hold
	Holders   []holderView `json:"holders"`             // oldest first; never null
	Waiters   []waiterView `json:"waiters"`             // next first; never null
	Trouble   string       `json:"trouble,omitempty"`   // why this may be incomplete or out of date
}

// identityView is driver.Identity without the maximum hold.
type identityView struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"` // on Host, perhaps in a container
	Note  string `json:"note"`
	Trace string `json:"trace,omitempty"` // the traceparent of the request
	Kind  string `json:"kind,omitempty"`  // what the lock is for, if it is not a lock like any other
}

func viewOfIdentity(id driver.Identity) identityView {
	return identityView{Host: id.Host, PID: id.PID, Note: id.Note, Trace: id.Trace, Kind: id.Kind}
}

// holderView is driver.Holder.
type holderView struct {
	Owner string `json:"owner"` // unique to this acquisition
	Token int64  `json:"token"` // 0 for a foreign holder
	identityView
	Since   stamp `json:"since"`              // by the server's clock; null if unknown
	Until   stamp `json:"max_until,omitzero"` // end of the maximum hold
	TTL     int64 `json:"ttl_ms"`             // the rest of the lease; 0 if the lock ends with its process
	Lease   int64 `json:"lease_ms,omitempty"` // the whole lease
	Weight  int   `json:"weight,omitempty"`   // its share of the limit
	Foreign bool  `json:"foreign"`            // held by another program, such as flock(1) or a plain SET NX
}

// waiterView is driver.Waiter.
type waiterView struct {
	Owner string `json:"owner"` // also the owner of its acquisition
	identityView
	Since    stamp `json:"since"`
	Position int   `json:"position"`         // 1 is next
	Weight   int   `json:"weight,omitempty"` // the share of the limit that it asks for
}

// viewOf converts a status. Its arrays are never nil, which JSON would show as null.
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
			Owner: h.Owner, Token: h.Token, identityView: viewOfIdentity(h.Identity),
			Since: stamp(h.Since), Until: stamp(h.MaxUntil()), TTL: h.TTL.Milliseconds(), Lease: h.Lease.Milliseconds(), Weight: h.Weight, Foreign: h.Foreign,
		})
	}
	for _, w := range s.Waiters {
		v.Waiters = append(v.Waiters, waiterView{
			Owner: w.Owner, identityView: viewOfIdentity(w.Identity), Since: stamp(w.Since), Position: w.Position, Weight: w.Weight,
		})
	}
	return v
}

// modeOf returns the mode of a name in one word. A name without holders and waiters that could not
// be read completely is "unknown", not "free": a script may rely on it.
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

// modeLimit returns the mode with its limit, such as "shared/3", and for a holder of more than one
// unit with its weight, such as "shared:2/3".
func modeLimit(s driver.Status, weight int) string {
	switch {
	case s.Limit == 0:
		return modeOf(s)
	case weight > 1:
		return fmt.Sprintf("%s:%d/%d", modeOf(s), weight, s.Limit)
	}
	return fmt.Sprintf("%s/%d", modeOf(s), s.Limit)
}
