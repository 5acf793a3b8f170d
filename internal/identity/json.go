package identity

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// JSON has the fields of an identity in a ticket of filelock and in a record of recordlock.
type JSON struct {
	Host      string `json:"host,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Note      string `json:"note,omitempty"`
	Trace     string `json:"trace,omitempty"`
	Kind      string `json:"kind,omitempty"`
	MaxHoldMS int64  `json:"max_hold_ms,omitempty"` // what the holder intends; nothing enforces it here
}

// JSONOf returns an identity whose texts went through cut, which bounds their length.
func JSONOf(id driver.Identity, cut func(string) string) JSON {
	return JSON{Host: cut(id.Host), PID: id.PID, Note: cut(id.Note), Trace: cut(id.Trace), Kind: cut(id.Kind), MaxHoldMS: id.MaxHold.Milliseconds()}
}

// Identity returns the identity.
func (j JSON) Identity() driver.Identity {
	return driver.Identity{Host: j.Host, PID: j.PID, Note: j.Note, Trace: j.Trace, Kind: j.Kind, MaxHold: time.Duration(j.MaxHoldMS) * time.Millisecond}
}
