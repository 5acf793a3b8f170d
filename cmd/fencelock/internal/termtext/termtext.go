// Package termtext makes text fit for a line of a terminal, whoever wrote it: names of
// locks, notes and hosts come from other processes, and what engines say comes from
// servers. None of it may move the cursor, begin a new line, or look like a column that
// it is not.
package termtext

import (
	"strconv"
	"strings"
	"unicode"
)

// Word returns a name, host or other word fit for a terminal and for a column:
// quoted as in Go when it is empty or contains a space or anything unprintable.
func Word(s string) string {
	if s == "" || strings.ContainsRune(s, ' ') {
		return strconv.Quote(s)
	}
	return Text(s)
}

// Text returns free text fit for a terminal: quoted as in Go when it contains anything
// unprintable or could be taken for quoted text.
func Text(s string) string {
	for _, r := range s {
		// A byte that is no UTF-8 arrives as the replacement character, which is printable.
		if !strconv.IsPrint(r) || r == '\uFFFD' {
			return strconv.Quote(s)
		}
	}
	if strings.HasPrefix(s, `"`) {
		return strconv.Quote(s)
	}
	return s
}

// Line returns text on one line: what is not printable is a space, and several spaces
// are one. It is for errors and talk, where quotes would be in the way.
func Line(s string) string {
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(printable), " ")
}
