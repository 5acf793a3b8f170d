// Package redisfmt writes and reads the texts of the engines on Redis: arguments of scripts; their
// answers, which are words separated by spaces, possibly with free text at the end; and what INFO
// returns.
package redisfmt

import (
	"strconv"
	"strings"
	"time"
)

// Words is a text being read.
type Words struct {
	Rest string // what has not been read
	Bad  bool   // a word was missing or malformed; what was read since is void
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

// Literal returns the glob pattern that matches s and nothing else.
func Literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
