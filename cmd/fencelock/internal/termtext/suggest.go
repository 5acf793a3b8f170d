package termtext

import "fmt"

// Suggest formats the word of known that is nearest to word, or returns "" when none is
// near: two edits away at most, and no more than half of what was meant.
func Suggest(word string, known []string, format string) string {
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

// distance counts the single-byte edits from a to b (Levenshtein). It keeps one row of
// the table: row[j] is the distance from what was read of a to the first j bytes of b.
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
