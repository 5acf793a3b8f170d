// Package recordtext makes the texts that recipes store for people: where a run was, and its error.
package recordtext

import (
	"os"
	"strings"
	"unicode/utf8"
)

// Host returns the name of this host, or "unknown".
func Host() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// Cut returns the first bytes of text, limit at most and without a part of a character at
// the end. What is not UTF-8 is replaced by U+FFFD first.
func Cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
