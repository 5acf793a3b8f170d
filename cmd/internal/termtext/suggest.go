package termtext

import "fmt"

// Suggest formats the word of known that is most similar to word. It returns "" if none is similar
// enough: at most two edits away, and at most half the length of the known word.
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

// distance returns the Levenshtein distance of a and b in bytes. It keeps one row of the table:
// row[j] is the distance from the bytes of a read so far to the first j bytes of b.
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
