//go:build unix

// Package pipe holds locks for the program that started this process. The program writes requests
// in JSON lines and reads answers; docs/pipe.md describes them. All guarantees of the library stay:
// the program learns of a loss before another holder can enter, also if the pipe or one of the two
// processes stands still. For that, the program gets with each answer how long it may believe
// that it holds a lock, counted from a time of its own clock, and this process keeps the lock for at least as long.
package pipe

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
)

// Protocol is the version of the lines that this package speaks.
const Protocol = 1

// Classes of errors besides those of the library.
const (
	classInvalid     = "invalid"
	classUnsupported = "unsupported"
)

// request is a line of the program.
type request struct {
	Op string   `json:"op"`
	ID int64    `json:"id"`
	At *float64 `json:"at"` // the program's clock, which answers return

	Name      string `json:"name"`
	WaitMS    *int64 `json:"wait_ms"` // nil: without a limit; 0: do not wait
	TTLMS     int64  `json:"ttl_ms"`
	Shared    bool   `json:"shared"`
	Limit     int    `json:"limit"`
	Weight    int    `json:"weight"`
	MinHoldMS int64  `json:"min_hold_ms"`
	MaxHoldMS int64  `json:"max_hold_ms"`
	Note      string `json:"note"`
	Kind      string `json:"kind"`
	Trace     string `json:"trace"`
	Rank      int    `json:"rank"` // of elect

	Rate  string `json:"rate"` // of take, such as 10/m
	Burst int    `json:"burst"`
	Count int    `json:"count"`
}

// response is a line to the program. It has one field besides ID and At.
type response struct {
	ID    int64           `json:"id,omitempty"`
	At    *float64        `json:"at,omitempty"` // the newest At that was read before anything of this line was measured
	Hello *hello          `json:"hello,omitempty"`
	Wait  *wait           `json:"waiting,omitempty"`
	Got   *grant          `json:"acquired,omitempty"`
	Left  map[int64]int64 `json:"left,omitzero"` // by id; may be empty
	Lost  *failure        `json:"lost,omitempty"`
	Ended string          `json:"ended,omitempty"`
	Check *check          `json:"check,omitempty"`
	Take  *takeResult     `json:"take,omitempty"`
	Stat  any             `json:"status,omitempty"`
	Err   *failure        `json:"error,omitempty"`
}

type hello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	Engine   string `json:"engine"`
	Leased   bool   `json:"leased"` // false: locks have no deadline
	PID      int    `json:"pid"`
}

type wait struct {
	Position int     `json:"position"`
	Held     *holder `json:"held,omitempty"`
	Trouble  string  `json:"trouble,omitempty"`
}

type grant struct {
	Token int64  `json:"token"`
	Text  string `json:"token_text"` // for languages whose numbers have 53 bits
	Floor int64  `json:"floor"`
	Owner string `json:"owner"`
	remaining
}

// remaining is how long the program may believe that it holds a lock.
type remaining struct {
	LeftMS *int64 `json:"left_ms,omitempty"`     // nil without a lease
	MaxMS  *int64 `json:"max_left_ms,omitempty"` // of the maximum hold; nil without one
}

type check struct {
	Held bool `json:"held"`
	remaining
}

type takeResult struct {
	OK        bool  `json:"ok"`
	Remaining int   `json:"remaining"`
	RetryMS   int64 `json:"retry_ms"`
}

// failure is an error as the program sees it.
type failure struct {
	Class string  `json:"class"`
	Text  string  `json:"text"`
	Held  *holder `json:"held,omitempty"`
}

// holder is who has the lock.
type holder struct {
	Owner string `json:"owner"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Note  string `json:"note"`
}

func holderOf(h *driver.HeldError) *holder {
	if h == nil {
		return nil
	}
	return &holder{h.Owner, h.Host, h.PID, h.Note}
}

// Failed returns the line that tells a program that no requests can be served because of err.
func Failed(err error, redact func(string) string) []byte {
	line, _ := json.Marshal(response{Err: failureOf(err, redact)}) // it has only text and numbers
	return append(line, '\n')
}

// failureOf returns the class of an error and its text. If it is of several kinds, the first one in
// the list decides.
func failureOf(err error, redact func(string) string) *failure {
	f := &failure{Class: "unavailable", Text: redact(err.Error())}
	for _, known := range []struct {
		err   error
		class string
	}{
		{driver.ErrHeld, "held"},
		{fencelock.ErrMaxHold, "max_hold"},
		{election.ErrResigned, "resigned"},
		{driver.ErrLost, "lost"},
		{driver.ErrNotHeld, "lost"},
		{driver.ErrConfig, "config"},
		{driver.ErrUnavailable, "unavailable"},
		{driver.ErrInvalid, classInvalid},
		{driver.ErrUnsupported, classUnsupported},
		{context.Canceled, "cancelled"},
	} {
		if errors.Is(err, known.err) {
			f.Class = known.class
			break
		}
	}
	if h, ok := errors.AsType[*driver.HeldError](err); ok {
		f.Held = holderOf(h)
	}
	return f
}
