package redisinspect

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// The estimate looks at the first keys of each master, in the order of their hashes. That
// costs the server some milliseconds, however many keys there are.
const (
	sampled   = 10_000    // keys of each master that are looked at
	usedBytes = 213       // what a name leaves behind
	usedMany  = 1_000_000 // names that are worth a warning
)

// usedNames estimates by some of the keys how many names are remembered. A name leaves its
// last token behind for Retention, since nobody knows whether it comes again.
func (in *Inspection) usedNames(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Check: "used names"}
	sizes, err := in.Conn.Each(ctx, "DBSIZE")
	if err != nil {
		return f, err
	}
	parts, err := in.Conn.Each(ctx, "SCAN", "0", "MATCH", "fence:*", "COUNT", strconv.Itoa(sampled))
	if err != nil {
		return f, err
	}
	var total int64
	about := ""
	for i := range min(len(sizes), len(parts)) {
		if err := cmp.Or(sizes[i].Err, parts[i].Err); err != nil {
			if refusal(err) {
				return noRight(f.Check, err, "+dbsize +scan"), nil
			}
			return f, err
		}
		cursor, keys, _ := strings.Cut(parts[i].Text, "\n")
		found := int64(len(strings.Fields(keys)))
		if cursor != "0" {
			found, about = found*redisfmt.Number(sizes[i].Text)/sampled, "about "
		}
		total += found
	}
	f.Observed = fmt.Sprintf("%s%d, each remembered for %v after its last use; %s", about, total, in.Retention, bytes(total*usedBytes))
	if total >= usedMany {
		f.Severity = driver.Warning
		f.Impact = "names that are used once fill the memory: each leaves its last token behind"
		f.Fix = "a shorter Retention (retention=1h in a URL) for such names, or fewer names"
	}
	return f, nil
}
