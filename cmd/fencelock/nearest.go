//go:build unix

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unknownScheme says which schemes there are and which was perhaps meant.
func unknownScheme(scheme string) error {
	known := slices.Sorted(maps.Keys(openers()))
	return fmt.Errorf("%s: unknown scheme%s (known: %s)",
		show(scheme), suggest(scheme, known, "; did you mean %s?"), strings.Join(known, ", "))
}

// suggest formats the word of known that is nearest to word, or returns "" when
// none is near.
func suggest(word string, known []string, format string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(word, k); d < least && 2*d <= len(k) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(format, best)
}

// distance counts the single-byte edits from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
