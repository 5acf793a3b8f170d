// Package termtext prepares text for one line of a terminal. Names, notes and hosts come from other
// processes, and error texts come from servers. None of them may move the cursor, start a new line,
// or look like another column.
package termtext

import (
	"strconv"
	"strings"
	"unicode"
)

// Word returns a name, host or other word for a column. It quotes the word as in Go if it is empty
// or contains a space or anything unprintable.
func Word(s string) string {
	if s == "" || strings.ContainsRune(s, ' ') {
		return strconv.Quote(s)
	}
	return Text(s)
}

// Text returns free text. It quotes the text as in Go if it contains anything unprintable or starts
// with a quote.
func Text(s string) string {
	for _, r := range s {
		// A byte that is not UTF-8 is decoded as the replacement character, which is printable.
		if !strconv.IsPrint(r) || r == '\uFFFD' {
			return strconv.Quote(s)
		}
	}
	if strings.HasPrefix(s, `"`) {
		return strconv.Quote(s)
	}
	return s
}

// Line returns text on one line, without quotes. It replaces each unprintable character by a space,
// and several spaces by one.
func Line(s string) string {
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(printable), " ")
}
