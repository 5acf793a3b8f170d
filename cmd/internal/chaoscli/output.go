//go:build unix

package chaoscli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/cmd/internal/chaos"
	"github.com/fencelock/fencelock/cmd/internal/cli"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
)

const chaosLogEvery = 10 * time.Second

// showChaos shows how far a run is: on a terminal in a line that is updated, elsewhere in a line of
// the log now and then. The caller must call stop.
func showChaos(a *cli.App, run *chaos.Live) (stop func()) {
	const wipe = "\r\x1b[K"
	live, every, began := cli.Columns(a.Stderr) > 0 && !cli.Dumb(), chaosLogEvery, time.Now()
	if live {
		every = 200 * time.Millisecond
	}
	done := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() { // ends at stop
		for {
			select {
			case <-time.After(every):
			case <-done:
				return
			}
			if text := liveText(run, time.Since(began)); live {
				fmt.Fprint(a.Stderr, wipe+cli.Cut("fencelock: "+text, cli.Columns(a.Stderr)))
			} else {
				a.Say("%s", text)
			}
		}
	})
	return func() {
		close(done)
		if over.Wait(); live {
			fmt.Fprint(a.Stderr, wipe)
		}
	}
}

func liveText(run *chaos.Live, since time.Duration) string {
	text := fmt.Sprintf("%v, %d violations, %d acquisitions, %d faults", since.Round(time.Second),
		run.Violations.Load(), run.Acquired.Load(), run.Faults.Load())
	if run.Shrinking.Load() {
		text += "; looking for fewer faults that show it"
	}
	return text
}

// chaosView is a report as --json prints it. docs/cli-json.md documents it.
type chaosView struct {
	*chaos.Report
	TTL        int64               `json:"ttl_ms"`
	Length     int64               `json:"length_ms"`
	Violations []history.Violation `json:"violations"`
}

func chaosViewOf(r *chaos.Report) chaosView {
	return chaosView{r, r.TTL.Milliseconds(), r.Length.Milliseconds(), append([]history.Violation{}, r.Violations()...)}
}

// chaosText is a report for people. again is the command that repeats the faults.
func chaosText(r *chaos.Report, again string) string {
	var b strings.Builder
	s, violated := r.Stats, map[string]int{}
	for _, v := range r.Violations() {
		violated[v.Rule]++
	}
	fmt.Fprintf(&b, "%s: %d workers, TTL %v, seed %d, %v\n\n", r.Engine, r.Workers, r.TTL, r.Seed, r.Length.Round(time.Second))
	row := func(word, format string, args ...any) {
		fmt.Fprintf(&b, "%-18s %s\n", word, fmt.Sprintf(format, args...))
	}
	row("faults", "%s", counted(r.Faults))
	row("acquisitions", "%d", s.Acquisitions)
	row("wait", "p50 %v, p99 %v", brief(s.WaitP50), brief(s.WaitP99))
	if len(s.Closed) > 0 {
		row("without a holder", "%v at most, while others waited (%s)", brief(s.Closed[0].Length()), s.Closed[0].Name)
	}
	if row("losses", "%d", s.Losses); s.Margin.Known {
		row("", "holders stopped at least %v before the next grant", brief(s.Margin.By))
	}
	row("overlaps", "%d", violated[history.Overlap]+violated[history.LimitExceeded])
	if r.Expected > 0 {
		row("", "%d findings that the engine's page calls possible after these faults", r.Expected)
	}
	row("late writes", "%d refused, %d accepted; %d writes", s.Refused, violated[history.LateWrite], s.Accepted)
	row("token order", "%d tokens were not greater than those before", violated[history.TokenOrder])
	row("fairness", "%.3f; turns %s", s.Fairness, turnsText(s.Turns))
	if r.Last.Free > 0 {
		row("free at the end", "after %v", brief(r.Last.Free))
	}
	for _, v := range r.Violations()[:min(3, len(r.Violations()))] {
		fmt.Fprintf(&b, "\nviolation: %s\n", termtext.Line(v.String()))
	}
	if n := len(r.Violations()); n > 3 {
		fmt.Fprintf(&b, "\n%d violations in all\n", n)
	}
	if r.Shrunk != nil {
		b.WriteString(shrunkText(r) + "All faults of the round again: " + again + "\n")
	}
	return b.String()
}

func brief(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// counted formats how often each of all occurred.
func counted(all map[string]int) string {
	var text []string
	for _, what := range slices.Sorted(maps.Keys(all)) {
		text = append(text, fmt.Sprintf("%s %d", what, all[what]))
	}
	return cmp.Or(strings.Join(text, ", "), "none")
}

func turnsText(turns map[string]int) string {
	const most = 10 // workers in a line
	if counts := slices.Sorted(maps.Values(turns)); len(counts) > most {
		return fmt.Sprintf("%d to %d of a worker", counts[0], counts[len(counts)-1])
	}
	return counted(turns)
}

// shrunkText formats the faults after which a violation occurred again.
func shrunkText(r *chaos.Report) string {
	var b strings.Builder
	s, when := r.Shrunk, "at last after these faults:"
	switch {
	case s.Again == 0:
		when = "each after these faults:"
	case len(s.Faults) == 0:
		when = "also without faults."
	}
	fmt.Fprintf(&b, "\nIt occurred again in %d of %d replays, %s\n", s.Again, s.Replays, when)
	for _, f := range s.Faults {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}
