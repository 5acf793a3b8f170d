package history

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// WriteEDN writes the exclusive acquisitions of a lock in the format of Jepsen: one map of EDN on each line,
// with :acquire and :release as the operations of a mutex, for checkers such as Knossos. The value of
// an acquire is its token. Each acquisition is a process of its own. It releases when its holder last
// believed in it, since what comes later harms nobody. Acquisitions in which no holder ever believed
// are left out, such as those that were returned after their lease. WriteEDN returns an error if no
// exclusive acquisition of that name is left, or if one is shared.
func (h *History) WriteEDN(w io.Writer, name string) error {
	type operation struct {
		at    time.Duration
		order int // of operations at the same time
		text  string
	}
	var all []operation
	process := 0
	for _, a := range h.Acquisitions {
		if a.Name != name || a.Until == 0 {
			continue
		}
		if a.Shared {
			return fmt.Errorf("%s: %q has shared holders, and is no mutex", a.ID, name)
		}
		put := func(at time.Duration, order int, kind, f, value string) {
			all = append(all, operation{at, order, fmt.Sprintf(":type %s, :process %d, :f %s, :value %s, :time %d", kind, process, f, value, at)})
		}
		token := fmt.Sprint(a.Token)
		put(a.Called, 0, ":invoke", ":acquire", "nil")
		put(a.Returned, 3, ":ok", ":acquire", token)
		until := max(a.Until, a.Returned+1)
		put(until, 1, ":invoke", ":release", token)
		put(until, 2, ":ok", ":release", token)
		process++
	}
	if process == 0 {
		return fmt.Errorf("the history has no acquisition of %q on which its holder relied", name)
	}
	slices.SortStableFunc(all, func(a, b operation) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) })
	buffer := bufio.NewWriter(w)
	for i, o := range all {
		fmt.Fprintf(buffer, "{:index %d, %s}\n", i, o.text)
	}
	return buffer.Flush()
}
