// Package traceparent checks traceparents of W3C Trace Context.
package traceparent

import "strings"

// Valid reports whether text is a traceparent of W3C Trace Context, version 00: "00-", 32
// hexadecimal digits of the trace ID, "-", 16 of the span ID, "-", and 2 of the flags. Digits must
// be lower case, and neither ID may be all zeros.
func Valid(text string) bool {
	if len(text) != 55 || !strings.HasPrefix(text, "00-") { // fast path: most requests have none
		return false
	}
	if text[35] != '-' || text[52] != '-' {
		return false
	}
	id, span, flags := text[3:35], text[36:52], text[53:]
	return hexadecimal(id) && hexadecimal(span) && hexadecimal(flags) &&
		strings.Trim(id, "0") != "" && strings.Trim(span, "0") != ""
}

// hexadecimal reports whether text consists of hexadecimal digits in lower case.
func hexadecimal(text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
