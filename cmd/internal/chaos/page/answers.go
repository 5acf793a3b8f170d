package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// A verdict is the first thing that the page says. Shape and sign are paths of its picture.
type verdict struct{ class, title, text, shape, sign string }

const (
	triangle = "M16 2.5L30 28.5H2z"
	circle   = "M16 1.5a14.5 14.5 0 100 29 14.5 14.5 0 000-29z"
)

func (f *facts) verdict() verdict {
	if len(f.Violations) > 0 {
		first := f.first()
		return verdict{"bad", count(len(f.Violations), "violation"), first.id + ": " + f.story(first), triangle, "M16 11.5v8.5M16 24v.4"}
	}
	if len(f.granted) == 0 {
		return verdict{"none", "Nothing was tested", "No worker acquired a lock in this run.", circle, "M9.5 16h13"}
	}
	claims := "no two workers held a lock at once, tokens were in order, each loss was signalled before the next grant"
	if len(f.marks) > 0 {
		claims = count(len(f.marks), "finding") + ", possible with these faults as the engine's page says"
	}
	return verdict{"ok", "No violations", fmt.Sprintf("In %s with %s in %s: %s.", count(len(f.granted), "acquisition"),
		count(len(f.Faults), "fault"), span(f.Length), claims), circle, "M9 16.5l4.8 4.8L23 11.5"}
}

// first returns the first violation, or the first expected finding if there is none.
func (f *facts) first() mark {
	return f.marks[max(0, slices.IndexFunc(f.marks, func(m mark) bool { return m.class == "bad" }))]
}

// about describes the run in a line.
func (f *facts) about() string {
	parts := []string{f.Engine, fmt.Sprintf("seed %d", f.Seed), f.Started.UTC().Format("2006-01-02 15:04:05 UTC"),
		span(f.Length), count(len(f.Workers), "worker"), "TTL " + span(f.TTL),
		fmt.Sprintf("%s, %s refused", count(f.stats.Accepted+f.stats.Refused, "guarded write"), number(f.stats.Refused))}
	if len(f.Undecided) > 0 {
		parts = append(parts, "linearizability not decided for "+strings.Join(f.Undecided, ", "))
	}
	return strings.Join(parts, " · ")
}

// An answer answers a question with a figure. Class is ok, bad, expected, or empty.
type answer struct{ question, class, short, long string }

func (f *facts) answers() []answer {
	if len(f.granted) == 0 {
		return nil
	}
	s := f.stats
	holders := answer{"More than one holder?", "ok", "never", fmt.Sprintf("in %s of %s", count(len(f.granted), "acquisition"), count(len(f.locks), "lock"))}
	if all := f.found(history.Overlap, &holders); len(all) > 0 {
		longest := slices.MaxFunc(all, func(a, b mark) int { return cmp.Compare(a.to-a.At, b.to-b.At) })
		holders.short, holders.long = count(len(all), "time"), "for at most "+span(longest.to-longest.At)+" "+holders.long
	}
	order := answer{"Tokens in order?", "ok", "always", "each is greater than all before it"}
	if all := f.found(history.TokenOrder, &order); len(all) > 0 {
		order.short, order.long = number(len(all))+" out of order", "the first one is "+all[0].id
	}
	signals := answer{"Loss signalled first?", "ok", "–", "no worker lost a lock"}
	late := len(f.found(history.LateLoss, &signals))
	if s.Losses > 0 {
		signals.short, signals.long = fmt.Sprintf("%s of %s", number(s.Losses-late), number(s.Losses)), "no other worker acquired the lock later"
	}
	switch by := s.Margin.By; {
	case by < 0:
		signals.long = fmt.Sprintf("the latest came %s after the next grant", span(-by))
	case s.Margin.Known && s.Signal.By < 0:
		signals.long = fmt.Sprintf("smallest margin %s; a frozen holder's counts from its deadline", span(by))
	case s.Margin.Known:
		signals.long = fmt.Sprintf("smallest margin %s before the next grant", span(by))
	}
	closed := answer{"Longest without a holder", "", "–", "no worker waited for a lock that nobody held"}
	if len(s.Closed) > 0 {
		closed.short, closed.long = span(s.Closed[0].Length()), "while workers that no fault hit waited for "+s.Closed[0].Name
	}
	turns := slices.Sorted(maps.Values(s.Turns))
	return []answer{
		holders, order, signals, closed,
		{"Wait, half within", "", span(s.WaitP50), "99 % within " + span(s.WaitP99)},
		{"Fair?", "", number(turns[0]) + " to " + number(turns[len(turns)-1]), fmt.Sprintf("turns of a worker, Jain's index %.2f", s.Fairness)},
	}
}

// found returns what was found against a rule, which changes the class of an answer.
func (f *facts) found(rule string, a *answer) (all []mark) {
	for _, m := range f.marks {
		if m.Rule == rule {
			all = append(all, m)
			a.class = min(a.class, m.class) // in the order of the alphabet: bad, expected, ok
		}
	}
	return all
}

// title is the rule, as the documentation calls it.
func (m mark) title() string {
	if m.class == "expected" {
		return m.Rule + ", expected"
	}
	return m.Rule
}

// story tells what a mark is about, in the words of the judge, and which fault came before.
func (f *facts) story(m mark) string {
	text := m.Text
	if m.before >= 0 {
		text += f.cause(m.At, f.granted[m.before].Worker)
	}
	return text
}

// moment formats a time of the run: "33.961 s".
func moment(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
