//go:build unix

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/internal/chaos"
)

// chaosLine shows how far a run is: on a terminal in a line that is updated, elsewhere in a line of
// the log now and then.
type chaosLine struct {
	app   *app
	run   *chaos.Live
	began time.Time
	done  chan struct{} // closed by stop
	over  sync.WaitGroup
}

const chaosLogEvery = 10 * time.Second

// newChaosLine starts the line. The caller must call stop.
func newChaosLine(a *app, run *chaos.Live) *chaosLine {
	l := &chaosLine{app: a, run: run, began: time.Now(), done: make(chan struct{})}
	l.over.Go(l.show) // ends at stop
	return l
}

func (l *chaosLine) stop() {
	close(l.done)
	l.over.Wait()
}

func (l *chaosLine) show() {
	live, every := isTTY(l.app.stderr) && !dumb(), chaosLogEvery
	if live {
		every = 200 * time.Millisecond
		defer fmt.Fprint(l.app.stderr, "\r\x1b[K")
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.done:
			return
		}
		if live {
			fmt.Fprint(l.app.stderr, "\r\x1b[K"+cut("fencelock: "+l.text(), columnsOf(l.app.stderr)))
		} else {
			l.app.say("%s", l.text())
		}
	}
}

func (l *chaosLine) text() string {
	text := fmt.Sprintf("%v, %d violations, %d acquisitions, %d faults", time.Since(l.began).Round(time.Second),
		l.run.Violations.Load(), l.run.Acquired.Load(), l.run.Faults.Load())
	if l.run.Shrinking.Load() {
		text += "; looking for fewer faults that show it"
	}
	return text
}

// chaosView is a report as --json prints it. docs/cli-json.md documents it.
type chaosView struct {
	Engine     string              `json:"engine"`
	Seed       uint64              `json:"seed"`
	Workers    int                 `json:"workers"`
	TTL        int64               `json:"ttl_ms"`
	Length     int64               `json:"length_ms"`
	Faults     map[string]int      `json:"faults"`
	Stats      history.Stats       `json:"stats"`
	Expected   int                 `json:"expected"`
	Violations []history.Violation `json:"violations"`
}

func chaosViewOf(r *chaos.Report) chaosView {
	return chaosView{
		Engine: r.Engine, Seed: r.Seed, Workers: r.Workers, TTL: r.TTL.Milliseconds(), Length: r.Length.Milliseconds(),
		Faults: r.Faults, Stats: r.Stats, Expected: r.Expected, Violations: append([]history.Violation{}, r.Violations()...),
	}
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
	row("losses", "%d%s", s.Losses, marginText(s.Margin))
	row("overlaps", "%d%s", violated[history.Overlap]+violated[history.LimitExceeded], expectedText(r.Expected))
	row("late writes", "%d refused, %d accepted; %d writes", s.Refused, violated[history.LateWrite], s.Accepted)
	row("token order", "%s", orderText(violated[history.TokenOrder]))
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

// counted formats how often each fault happened.
func counted(faults map[string]int) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(faults)) {
		all = append(all, fmt.Sprintf("%s %d", what, faults[what]))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

func marginText(m history.Margin) string {
	if !m.Known {
		return ""
	}
	return fmt.Sprintf("; holders stopped at least %v before the next grant", brief(m.By))
}

func expectedText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d findings that the engine's page calls possible after these faults", n)
}

func orderText(n int) string {
	if n == 0 {
		return "each token was greater than those before"
	}
	return fmt.Sprintf("%d tokens were not greater than those before", n)
}

func turnsText(turns []history.Turns) string {
	const most = 10 // workers in a line
	if len(turns) > most {
		byCount := func(a, b history.Turns) int { return a.Count - b.Count }
		return fmt.Sprintf("%d to %d of a worker", slices.MinFunc(turns, byCount).Count, slices.MaxFunc(turns, byCount).Count)
	}
	var all []string
	for _, t := range turns {
		all = append(all, fmt.Sprintf("%s %d", t.Worker, t.Count))
	}
	return strings.Join(all, ", ")
}

// shrunkText formats the faults after which a violation occurred again.
func shrunkText(r *chaos.Report) string {
	var b strings.Builder
	s := r.Shrunk
	switch {
	case s.Again == 0:
		fmt.Fprintf(&b, "\nIt did not occur again in %d replays of these faults:\n", s.Replays)
	case len(s.Faults) == 0:
		fmt.Fprintf(&b, "\nIt occurred again in %d of %d replays, also without faults.\n", s.Again, s.Replays)
	default:
		fmt.Fprintf(&b, "\nIt occurred again in %d of %d replays, at last after these faults:\n", s.Again, s.Replays)
	}
	for _, f := range s.Faults {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}
