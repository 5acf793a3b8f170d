package election

import (
	"fmt"
	"strconv"
	"strings"
)

// A candidate publishes its rank in the note of its request, as in "10.0.0.7:8080 (rank 2)", since
// every engine lists the notes of waiting requests. A note without a rank means rank 0. The note
// "(to web2)" is not that of a candidate: it asks all candidates to let one on web2 lead.

// writeNote returns the note of a candidate. The rank 0 is omitted, unless readNote would find a
// rank or a host in the value.
func writeNote(value string, rank int) string {
	if plain, _, to := readNote(value); rank == 0 && plain == value && to == "" {
		return value
	}
	return strings.TrimPrefix(fmt.Sprintf("%s (rank %d)", value, rank), " ")
}

// readNote returns the value and the rank of a candidate, or the host of a note that asks for a
// leader there.
func readNote(note string) (value string, rank int, to string) {
	rest, ok := strings.CutSuffix(note, ")")
	if !ok {
		return note, 0, ""
	}
	if i := strings.LastIndex(rest, "(rank "); i == 0 || i > 0 && rest[i-1] == ' ' {
		if n, err := strconv.ParseUint(rest[i+len("(rank "):], 10, 31); err == nil {
			return note[:max(i-1, 0)], int(n), ""
		}
	}
	if to, ok := strings.CutPrefix(rest, "(to "); ok {
		return "", 0, to
	}
	return note, 0, ""
}

// wishNote returns the note that asks for a leader on host.
func wishNote(host string) string { return "(to " + host + ")" }
