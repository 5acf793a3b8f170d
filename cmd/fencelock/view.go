//go:build unix

package main

import "github.com/fencelock/fencelock/driver"

// view is driver.Status as --json prints it; docs/cli-json.md documents it.
type view struct {
	Name      string       `json:"name"`
	Mode      string       `json:"mode"`
	Limit     int          `json:"limit,omitempty"`
	NotBefore *stamp       `json:"not_before,omitempty"`
	Holders   []holderView `json:"holders"`
	Waiters   []waiterView `json:"waiters"`
	Trouble   string       `json:"trouble,omitempty"`
}

type holderView struct {
	Owner   string `json:"owner"`
	Token   int64  `json:"token"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Note    string `json:"note"`
	Since   stamp  `json:"since"`
	TTL     int64  `json:"ttl_ms"`
	Lease   int64  `json:"lease_ms,omitempty"`
	Weight  int    `json:"weight,omitempty"`
	Foreign bool   `json:"foreign"`
}

type waiterView struct {
	Owner    string `json:"owner"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Note     string `json:"note"`
	Since    stamp  `json:"since"`
	Position int    `json:"position"`
	Weight   int    `json:"weight,omitempty"`
}

// viewOf never leaves an array nil, which would print as null.
func viewOf(s driver.Status) view {
	v := view{
		Name: s.Name, Mode: modeOf(s), Limit: s.Limit,
		Holders: make([]holderView, 0, len(s.Holders)),
		Waiters: make([]waiterView, 0, len(s.Waiters)),
	}
	if s.Trouble != nil {
		v.Trouble = oneLine(s.Trouble.Error())
	}
	if !s.NotBefore.IsZero() {
		until := stamp(s.NotBefore)
		v.NotBefore = &until
	}
	for _, h := range s.Holders {
		v.Holders = append(v.Holders, holderView{
			Owner: h.Owner, Token: h.Token, Host: h.Host, PID: h.PID, Note: h.Note,
			Since: stamp(h.Since), TTL: h.TTL.Milliseconds(), Lease: h.Lease.Milliseconds(), Weight: h.Weight, Foreign: h.Foreign,
		})
	}
	for _, w := range s.Waiters {
		v.Waiters = append(v.Waiters, waiterView{
			Owner: w.Owner, Host: w.Host, PID: w.PID, Note: w.Note, Since: stamp(w.Since), Position: w.Position, Weight: w.Weight,
		})
	}
	return v
}

// modeOf says in one word whom a name lets in.
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
