// Package words encodes the identity of a client for storage on servers.
package words

import (
	"strings"

	"github.com/fencelock/fencelock/driver"
)

const (
	kindMark    = "kind="
	longestKind = 32 // bytes
)

// Host returns the host, the kind and the trace of an identity as one text, "host#kind=KIND#TRACE".
// A kind or a trace that is missing or invalid is left out.
func Host(id driver.Identity) string {
	text := id.Host
	if validKind(id.Kind) {
		text += "#" + kindMark + id.Kind
	}
	if driver.ValidTrace(id.Trace) {
		text += "#" + id.Trace
	}
	return text
}

// SetHost sets the host, the kind and the trace of an identity from a text of Host.
func SetHost(id *driver.Identity, text string) {
	id.Host, id.Kind, id.Trace = text, "", ""
	if i := strings.LastIndexByte(id.Host, '#'); i >= 0 && driver.ValidTrace(id.Host[i+1:]) {
		id.Host, id.Trace = id.Host[:i], id.Host[i+1:]
	}
	if i := strings.LastIndexByte(id.Host, '#'); i >= 0 {
		if kind, marked := strings.CutPrefix(id.Host[i+1:], kindMark); marked && validKind(kind) {
			id.Host, id.Kind = id.Host[:i], kind
		}
	}
}

// validKind reports whether a kind is one word that no server has to quote.
func validKind(kind string) bool {
	strange := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}
	return kind != "" && len(kind) <= longestKind && strings.IndexFunc(kind, strange) < 0
}
