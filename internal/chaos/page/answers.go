package page

import (
	"cmp"
	"fmt"
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
	if f.bad > 0 {
		first := f.first()
		return verdict{"bad", count(f.bad, "violation"), first.id + ": " + f.story(first), triangle, "M16 11.5v8.5M16 24v.4"}
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

// An answer answers a question with a figure. Class is ok, bad, or empty.
type answer struct{ question, class, short, long string }

func (f *facts) answers() []answer {
	if len(f.granted) == 0 {
		return nil
	}
	wait := answer{"Wait, half within", "", span(f.stats.WaitP50), "99 % within " + span(f.stats.WaitP99)}
	return []answer{f.holders(), f.order(), f.signals(), f.closed(), wait, f.fair()}
}

// found returns what was found against a rule, and the class: bad if some of it is a violation.
func (f *facts) found(rule string) (all []mark, class string) {
	class = "ok"
	for _, m := range f.marks {
		if m.Rule == rule {
			all = append(all, m)
			class = min(class, m.class) // in the order of the alphabet: bad, expected, ok
		}
	}
	return all, class
}

func (f *facts) holders() answer {
	all, class := f.found(history.Overlap)
	long := fmt.Sprintf("in %s of %s", count(len(f.granted), "acquisition"), count(len(f.locks), "lock"))
	if len(all) == 0 {
		return answer{"More than one holder?", class, "never", long}
	}
	var longest time.Duration
	for _, m := range all {
		longest = max(longest, m.to-m.At)
	}
	return answer{"More than one holder?", class, count(len(all), "time"), "for at most " + span(longest) + " " + long}
}

func (f *facts) order() answer {
	all, class := f.found(history.TokenOrder)
	if len(all) == 0 {
		return answer{"Tokens in order?", class, "always", "each is greater than all before it"}
	}
	return answer{"Tokens in order?", class, number(len(all)) + " out of order", "first: " + f.story(all[0])}
}

func (f *facts) signals() answer {
	late, class := f.found(history.LateLoss)
	a := answer{"Loss signalled first?", class, fmt.Sprintf("%s of %s", number(len(f.losses)-len(late)), number(len(f.losses))), "no other worker acquired the lock later"}
	switch m := f.stats.Margin; {
	case len(f.losses) == 0:
		a.class, a.short, a.long = "", "–", "no worker lost a lock"
	case m.Known && m.By < 0:
		a.long = fmt.Sprintf("the latest came %s after the next grant", span(-m.By))
	case m.Known && f.stats.Signal.By < 0:
		a.long = fmt.Sprintf("smallest margin %s; a frozen holder's counts from its deadline", span(m.By))
	case m.Known:
		a.long = fmt.Sprintf("smallest margin %s before the next grant", span(m.By))
	}
	return a
}

func (f *facts) closed() answer {
	if len(f.stats.Closed) == 0 {
		return answer{"Longest without a holder", "", "–", "no worker waited for a lock that nobody held"}
	}
	c := f.stats.Closed[0]
	return answer{"Longest without a holder", "", span(c.Length()), "while workers that no fault hit waited for " + c.Name}
}

func (f *facts) fair() answer {
	turns := []int{}
	for _, t := range f.stats.Turns {
		turns = append(turns, t.Count)
	}
	return answer{"Fair?", "", number(slices.Min(turns)) + " to " + number(slices.Max(turns)), fmt.Sprintf("turns of a worker, Jain's index %.2f", f.stats.Fairness)}
}

// titles are what people call a violation of a rule. Other rules are their own titles.
var titles = map[string]string{
	history.Overlap:    "More than one holder",
	history.TokenOrder: "Token out of order",
	history.LateLoss:   "Loss signalled too late",
}

func (m mark) title() string {
	title := cmp.Or(titles[m.Rule], m.Rule)
	if m.class == "expected" {
		title += ", expected"
	}
	return title
}

// story tells what a mark is about in the words of the workers, and else in those of the judge.
func (f *facts) story(m mark) string {
	if m.before < 0 || m.after < 0 || titles[m.Rule] == "" {
		return sentence(m.Text)
	}
	before, after := f.granted[m.before], f.granted[m.after]
	var text string
	switch m.Rule {
	case history.Overlap:
		text = fmt.Sprintf("%s (token %d) and %s (token %d) both held %s for %s, %s into the run",
			before.Worker, before.Token, after.Worker, after.Token, m.Name, span(m.to-m.At), moment(m.At))
	case history.TokenOrder:
		text = fmt.Sprintf("%s was granted %s with token %d; %s had been granted it with token %d", after.Worker, m.Name, after.Token, before.Worker, before.Token)
	case history.LateLoss:
		text = fmt.Sprintf("%s was told that it had lost %s after %s was granted it", before.Worker, m.Name, after.Worker)
	}
	if k := f.cause(m.At, before.Worker); k >= 0 {
		text += fmt.Sprintf(", after %s (%s)", id("F", k), f.Faults[k].What)
	}
	return sentence(text)
}
