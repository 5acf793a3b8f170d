// Package identity encodes the identity of a holder or waiter for storage: as the text in which
// Redis and PostgreSQL keep the host, and as JSON.
package identity

import (
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/traceparent"
)

const (
	kindMark    = "kind="
	maxMark     = "max="
	longestKind = 32 // bytes
)

// HostText returns the host, the kind, the maximum hold in milliseconds and the trace of an
// identity as one text, "host#kind=KIND#max=600000#TRACE". What is missing or invalid is left out.
func HostText(id driver.Identity) string {
	text := id.Host
	if validKind(id.Kind) {
		text += "#" + kindMark + id.Kind
	}
	if ms := id.MaxHold.Milliseconds(); ms > 0 {
		text += "#" + maxMark + strconv.FormatInt(ms, 10)
	}
	if traceparent.Valid(id.Trace) {
		text += "#" + id.Trace
	}
	return text
}

// ParseHostText sets the host, the kind, the maximum hold and the trace of an identity from a text of
// HostText.
func ParseHostText(id *driver.Identity, text string) {
	id.Host, id.Kind, id.Trace, id.MaxHold = text, "", "", 0
	if before, last := cutLast(id.Host); traceparent.Valid(last) {
		id.Host, id.Trace = before, last
	}
	before, last := cutLast(id.Host)
	if text, marked := strings.CutPrefix(last, maxMark); marked {
		if ms, ok := maximum(text); ok {
			id.Host, id.MaxHold = before, ms
		}
	}
	before, last = cutLast(id.Host)
	if kind, marked := strings.CutPrefix(last, kindMark); marked && validKind(kind) {
		id.Host, id.Kind = before, kind
	}
}

// cutLast divides a text at its last "#". If there is none, last is empty.
func cutLast(text string) (before, last string) {
	if i := strings.LastIndexByte(text, '#'); i >= 0 {
		return text[:i], text[i+1:]
	}
	return text, ""
}

// validKind reports whether a kind is one word that no server has to quote.
func validKind(kind string) bool {
	strange := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}
	return kind != "" && len(kind) <= longestKind && strings.IndexFunc(kind, strange) < 0
}

// maximum parses a maximum hold. It refuses a text that HostText does not write.
func maximum(text string) (time.Duration, bool) {
	ms, err := strconv.ParseInt(text, 10, 64)
	ok := err == nil && ms > 0 && ms <= driver.MaxDuration.Milliseconds() && strconv.FormatInt(ms, 10) == text
	return time.Duration(ms) * time.Millisecond, ok
}
