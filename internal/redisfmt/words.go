// Package redisfmt encodes and decodes the messages of the engines on Redis: arguments of scripts,
// their answers, which are words separated by spaces and possibly free text at the end, and answers
// to INFO and TIME.
package redisfmt

import (
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/identity"
)

// Words is a text that is being read word by word.
type Words struct {
	Rest string // the unread part
	Bad  bool   // a word was missing or malformed: discard what was read
}

// Next returns the next word.
func (w *Words) Next() string {
	word, rest, _ := strings.Cut(w.Rest, " ")
	w.Bad = w.Bad || word == ""
	w.Rest = rest
	return word
}

// Int returns the next word as a number.
func (w *Words) Int() int64 {
	n, err := strconv.ParseInt(w.Next(), 10, 64)
	w.Bad = w.Bad || err != nil
	return n
}

// Millis returns the next word, a number of milliseconds, as a duration.
func (w *Words) Millis() time.Duration { return time.Duration(w.Int()) * time.Millisecond }

// Identity returns the rest, a text of the function Identity.
func (w *Words) Identity() (id driver.Identity) {
	id.PID = int(w.Int())
	identity.ParseHostText(&id, Host(w.Next()))
	id.Note = w.Rest
	return id
}

// Literal returns the glob pattern that matches only s.
func Literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
