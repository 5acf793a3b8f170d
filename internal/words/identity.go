// Package words encodes the identity of a client for storage on servers.
package words

import (
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// Host returns the host and the trace of an identity as one text, "host#trace".
func Host(id driver.Identity) string {
	if !driver.ValidTrace(id.Trace) {
		return id.Host
	}
	return id.Host + "#" + id.Trace
}

// SetHost sets the host and the trace of an identity from a text of Host.
func SetHost(id *driver.Identity, text string) {
	id.Host, id.Trace = text, ""
	if i := strings.LastIndexByte(text, '#'); i >= 0 && driver.ValidTrace(text[i+1:]) {
		id.Host, id.Trace = text[:i], text[i+1:]
	}
}
