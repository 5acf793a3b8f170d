// Package recordtext cuts the texts that recipes store for people, such as the error of a run.
package recordtext

import (
	"strings"
	"unicode/utf8"
)

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
