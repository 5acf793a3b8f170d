package evidence

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Dir is the directory of the results, and Page the page that shows them, both in the repository.
const (
	Dir  = "docs/evidence"
	Page = "docs/evidence.md"
)

// WritePage writes the page from the results of a repository.
func WritePage(root string) error {
	text, err := Render(filepath.Join(root, Dir))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, Page), []byte(text), 0o644)
}

// A section is one part of the page, from one file.
type section struct {
	file, title string
	intro       string
	body        func(*strings.Builder, Report)
}

var sections = []section{
	{"suite.json", "Conformance suite, mutants and twins", introSuite, writeSuite},
	{"nemesis.json", "Faults on real servers", introNemesis, writeNemesis},
	{"soak.json", "Soak", introSoak, writeSoak},
	{"sim.json", "Simulator", introSim, writeSim},
	{"explore.json", "States visited", introExplore, writeExplored},
	{"comparison.json", "When a loss is reported", introComparison, writeComparison},
	{"faults.json", "Published faults of other libraries", introFaults, writeFaults},
	{"suites.json", "Test suites of other projects", introShims, writeShims},
}

const introPage = `# Evidence

` + "`make evidence`" + ` writes this page from the files in [evidence](evidence).
[Testing](internals/testing.md) explains the tests.

`

const introSuite = `All engines run one [conformance suite](glossary.md#conformance-suite) and skip cases about features
that they do not have. A test must find each [mutant](glossary.md#mutant). The scripts must give the
same answers as their [twins](glossary.md#twin).`

const introNemesis = `The [nemesis](chaos.md) injects faults that must be safe. A violation is an overlap of two holders,
a token out of order, or a name that is not free in time.`

const introSoak = `The same faults, with 100 locks of 20 workers.`

const introSim = `Redlock's decisions on modelled nodes, clocks and networks. Each class outside of the model drops
one assumption, so violations are expected there.`

const introExplore = `The [explorer](internals/testing.md#the-explorer) visited all states up to each bound, and found the
invariants of the [specification](specification.md) kept.`

const introComparison = `The holder's process is frozen until a second after the takeover, or partitioned with its
connections left open, or all servers are killed and started again. The holder asks its library each
millisecond whether it holds the lock. *Margin*: the time from the last yes to the acquisition of a
waiting process, the smallest of the runs. A negative margin is an overlap; a yes after the thaw
counts as -1 s.

redsync and bsm/redislock leave renewals to their users: here, every third of the TTL, and a renewal
that fails is a no. For River's leader, its log shows when it stopped. Redis has no persistence.`

const introFaults = `To repeat one: ` + "`go run -C lab ./bench/peers -only NAME`" + `.`

const introShims = `The unchanged test files of other projects run on fencelock through an adapter.`

// Render returns the page for the results in a directory. A section whose file is missing is left
// out.
func Render(dir string) (string, error) {
	var b strings.Builder
	b.WriteString(introPage)
	var present []section
	reports := map[string]Report{}
	for _, s := range sections {
		r, err := Read(filepath.Join(dir, s.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		present, reports[s.file] = append(present, s), r
		fmt.Fprintf(&b, "- [%s](#%s)\n", s.title, anchor(s.title))
	}
	for _, s := range present {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", s.title, s.intro)
		s.body(&b, reports[s.file])
		b.WriteString("\n" + footer(reports[s.file].Header, s.file) + "\n")
	}
	return b.String(), nil
}

// anchor is what GitHub makes of a heading.
func anchor(title string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		if r == ',' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(title)), " ", "-")
}

// footer says when and how a section was measured, and which file has the machine and the versions.
func footer(h Header, file string) string {
	return wrap(fmt.Sprintf("%s, %s, `%s`: [machine and versions](evidence/%s).", h.Date, length(h.Seconds), h.Command, file))
}

// wrap breaks a paragraph into lines of at most 100 characters, but not inside a command.
func wrap(text string) string {
	var b strings.Builder
	column := 0
	for i, word := range words(text) {
		switch {
		case i == 0:
		case column+1+len(word) > 100:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// words splits a text at spaces outside of backquotes.
func words(text string) (all []string) {
	open := false
	for word := range strings.SplitSeq(text, " ") {
		if open {
			all[len(all)-1] += " " + word
		} else {
			all = append(all, word)
		}
		if strings.Count(word, "`")%2 == 1 {
			open = !open
		}
	}
	return all
}

func length(seconds int64) string {
	if seconds < 120 {
		return fmt.Sprintf("%d s", seconds)
	}
	return fmt.Sprintf("%d min", (seconds+30)/60)
}

// table writes a table; columns from numbers on are aligned to the right.
func table(b *strings.Builder, heads []string, numbers []int, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|", strings.Join(heads, " | "))
	for i := range heads {
		if slices.Contains(numbers, i) {
			b.WriteString("---:|")
		} else {
			b.WriteString("---|")
		}
	}
	b.WriteString("\n")
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

func writeSuite(b *strings.Builder, r Report) {
	var rows [][]string
	for _, s := range r.Suite {
		rows = append(rows, []string{s.Subject, also(s.Passed, s.Failed, "failed"), fmt.Sprint(s.Skipped)})
	}
	table(b, []string{"engine", "passed", "skipped"}, []int{1, 2}, rows)
	writeMutants(b, r)
	for i, t := range r.Twins {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(b, "- twin of the %s scripts: %s sequences, %d differences\n", t.Subject, grouped(int64(t.Sequences)), t.Differences)
	}
}

// also is a number, and a second one unless that is zero.
func also(n, more int, what string) string {
	if more == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d, %d %s", n, more, what)
}

func writeMutants(b *strings.Builder, r Report) {
	var rows [][]string
	for _, m := range r.Mutants {
		rows = append(rows, []string{m.Where, fmt.Sprintf("%d of %d", m.Found, m.Total)})
	}
	if len(rows) > 0 {
		b.WriteString("\n")
		table(b, []string{"mutants of", "found"}, []int{1}, rows)
	}
}

func writeNemesis(b *strings.Builder, r Report) {
	var rows [][]string
	for _, n := range r.Nemesis {
		rows = append(rows, []string{n.Engine, grouped(n.Acquisitions), grouped(n.Faults), fmt.Sprint(n.Violations)})
	}
	table(b, []string{"engine", "acquisitions", "faults injected", "violations"}, []int{1, 2, 3}, rows)
}

func writeSoak(b *strings.Builder, r Report) {
	var sum Nemesis
	for _, n := range r.Nemesis {
		sum.Acquisitions, sum.Faults, sum.Violations = sum.Acquisitions+n.Acquisitions, sum.Faults+n.Faults, sum.Violations+n.Violations
	}
	fmt.Fprintf(b, "%s acquisitions and %s faults on %d kinds of servers: %d violations.\n", grouped(sum.Acquisitions), grouped(sum.Faults), len(r.Nemesis), sum.Violations)
}

func writeSim(b *strings.Builder, r Report) {
	for _, inside := range []bool{true, false} {
		var rows [][]string
		for _, c := range r.Simulator {
			if c.Model != inside {
				continue
			}
			var broken []string
			for _, v := range slices.Sorted(maps.Keys(c.Violations)) {
				broken = append(broken, fmt.Sprintf("%s %s", v, grouped(c.Violations[v])))
			}
			rows = append(rows, []string{c.About, grouped(c.Schedules), cmp.Or(strings.Join(broken, ", "), "0")})
		}
		title := map[bool]string{true: "inside the model", false: "outside the model"}[inside]
		table(b, []string{title, "schedules", "violations"}, []int{1, 2}, rows)
		if inside {
			b.WriteString("\n")
		}
	}
}

func writeExplored(b *strings.Builder, r Report) {
	var first Explored // of its model
	for i, e := range r.Explored {
		if e.Model != first.Model {
			if first = e; i > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(b, "%s, states, invariants %s:\n\n", e.Model, e.Invariants)
		}
		also := ""
		if e.Invariants != first.Invariants {
			also = " (" + e.Invariants + ")"
		}
		fmt.Fprintf(b, "- %s: %s%s\n", e.Bound, grouped(e.States), also)
	}
	if len(r.Walked) > 0 {
		b.WriteString("\nSteps of random walks within larger bounds, which broke none either:\n\n")
	}
	for _, w := range r.Walked {
		fmt.Fprintf(b, "- %s, %s: %s\n", w.Model, w.Bound, grouped(w.Steps))
	}
	writeMutants(b, r)
}

func writeComparison(b *strings.Builder, r Report) {
	trials := []string{"frozen", "partitioned", "restarted"}
	var order []string
	cells := map[string]map[string]Comparison{}
	for _, c := range r.Comparisons {
		if cells[c.Subject] == nil {
			order, cells[c.Subject] = append(order, c.Subject), map[string]Comparison{}
		}
		cells[c.Subject][c.Scenario] = c
	}
	var rows [][]string
	usual := "" // the settings of all rows that do not have their own
	for _, subject := range order {
		row := []string{subject, "", "", ""}
		for i, t := range trials {
			row[1+i] = margin(cells[subject][t])
		}
		c := cells[subject][trials[0]]
		settings := fmt.Sprintf("%d runs, TTL %d s", max(1, c.Runs), c.TTL/1000)
		if usual == "" {
			usual = settings
		}
		if settings != usual {
			row[0] += " (" + settings + ")"
		}
		rows = append(rows, row)
	}
	table(b, []string{usual, "frozen holder", "partitioned holder", "servers restarted"}, []int{1, 2, 3}, rows)
}

// margin is the cell of one comparison.
func margin(c Comparison) string {
	switch {
	case c.Takeover < 0 && c.Signal < 0:
		return "keeps the lock"
	case c.Takeover < 0:
		return "no successor"
	case c.Signal < 0:
		return fmt.Sprintf("less than -%s", spell(c.Overlap))
	case c.Overlap > 0:
		return "**-" + spell(c.Overlap) + "**"
	}
	return spell(-c.Overlap)
}

// spell is a time as the tables print it.
func spell(ms int64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}

func writeFaults(b *strings.Builder, r Report) {
	var rows [][]string
	for i, f := range r.Faults {
		if i == 0 || r.Faults[i-1].Scenario != f.Scenario {
			rows = append(rows, []string{"`" + f.Scenario + "`", fmt.Sprintf("[%s](%s)", f.Fault, f.Thread), "", ""})
		}
		row, cell := rows[len(rows)-1], 2
		if !f.Shows {
			cell = 3
		}
		row[cell] = strings.TrimPrefix(f.Subject, "fencelock, ") + ": " + f.Seen
	}
	table(b, []string{"name", "fault", "other library", "fencelock"}, nil, rows)
	if slices.ContainsFunc(r.Faults, func(f Fault) bool { return f.Rewritten }) {
		b.WriteString("\n\"Rewritten\" is a short program that does what the library's published source does, because the\n" +
			"library is not available as a module.\n")
	}
}

func writeShims(b *strings.Builder, r Report) {
	var rows [][]string
	for _, s := range r.Shims {
		tests := map[string]int{}
		var reasons []string
		for _, d := range s.Differences {
			if tests[d.Why]++; tests[d.Why] == 1 {
				reasons = append(reasons, d.Why)
			}
		}
		for i, why := range reasons {
			reasons[i] = fmt.Sprintf("%d: %s", tests[why], why)
		}
		rows = append(rows, []string{s.Suite + " " + s.Version, s.Engine, also(s.Passed, s.Skipped, "skipped"), fmt.Sprint(s.Failed), strings.Join(reasons, ". ")})
	}
	table(b, []string{"suite", "runs on", "passed", "failed", "by design"}, []int{2, 3}, rows)
}

// grouped is a number with commas.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
