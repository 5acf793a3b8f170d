package page

import (
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
	claims := []string{"no two workers held a lock at once", "tokens were in order"}
	if len(f.losses) > 0 {
		claims = append(claims, "each loss was signalled before the next grant")
	}
	if len(f.marks) > 0 {
		claims = []string{count(len(f.marks), "finding") + ", possible with these faults as the engine's page says"}
	}
	return verdict{"ok", "No violations", fmt.Sprintf("In %s with %s in %s: %s.", count(len(f.granted), "acquisition"),
		count(len(f.Faults), "fault"), span(f.Length), strings.Join(claims, ", ")), circle, "M9 16.5l4.8 4.8L23 11.5"}
}

// first returns the first violation, or the first expected finding if there is none.
func (f *facts) first() mark {
	return f.marks[max(0, slices.IndexFunc(f.marks, func(m mark) bool { return !m.expected }))]
}

// about describes the run in a line.
func (f *facts) about() string {
	hosts := map[string]bool{}
	for _, w := range f.workers {
		hosts[w.Host] = true
	}
	parts := []string{f.Engine, fmt.Sprintf("seed %d", f.Seed)}
	if !f.Started.IsZero() {
		parts = append(parts, f.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	parts = append(parts, span(f.Length), count(len(f.workers), "worker")+" on "+count(len(hosts), "host"))
	if f.TTL > 0 {
		parts = append(parts, "TTL "+span(f.TTL))
	}
	if n := f.stats.Accepted + f.stats.Refused; n > 0 {
		parts = append(parts, fmt.Sprintf("%s, %s refused", count(n, "guarded write"), number(f.stats.Refused)))
	}
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
	var longest time.Duration
	for _, a := range f.granted {
		longest = max(longest, a.Returned-a.Called)
	}
	wait := answer{"Wait, half within", "", span(f.stats.WaitP50), fmt.Sprintf("99 %% within %s, longest %s", span(f.stats.WaitP99), span(longest))}
	return []answer{f.holders(), f.order(), f.signals(), f.closed(), wait, f.fair()}
}

// found returns the violations of a rule, or what is expected if there are none, and the class.
func (f *facts) found(rule string) (all []mark, class string) {
	class = "ok"
	for _, m := range f.marks {
		if m.Rule == rule {
			all = append(all, m)
			if !m.expected {
				class = "bad"
			} else if class == "ok" {
				class = "expected"
			}
		}
	}
	return all, class
}

func (f *facts) holders() answer {
	all, class := f.found(history.Overlap)
	in := fmt.Sprintf("in %s of %s", count(len(f.granted), "acquisition"), count(len(f.locks), "lock"))
	var longest time.Duration
	for _, m := range all {
		longest = max(longest, m.to-m.At)
	}
	short := "never"
	if len(all) == 1 {
		short = "once, " + span(longest)
	} else if len(all) > 1 {
		short, in = count(len(all), "time"), "for at most "+span(longest)+" "+in
	}
	return answer{"More than one holder?", class, short, in}
}

func (f *facts) order() answer {
	all, class := f.found(history.TokenOrder)
	if len(all) == 0 {
		return answer{"Tokens in order?", class, "always", "each is greater than all before it"}
	}
	long := f.story(all[0])
	if m := all[0]; m.before >= 0 && m.after >= 0 {
		long = fmt.Sprintf("%s was granted after %s", f.token(m.after), f.token(m.before))
	}
	short := "1 is not"
	if len(all) > 1 {
		short = number(len(all)) + " are not"
	}
	return answer{"Tokens in order?", class, short, long}
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
	a := answer{"Longest without a holder", "", span(c.Length()), "while workers that no fault hit waited for " + c.Name}
	if i := f.find(c.After); i >= 0 {
		if k := f.cause(c.From, f.granted[i].Worker); k >= 0 {
			a.long += fmt.Sprintf("; %s, %s", id("F", k), f.Faults[k].What)
		}
	}
	return a
}

func (f *facts) fair() answer {
	if len(f.stats.Turns) == 0 {
		return answer{"Fair?", "", "–", "the history lists no workers"}
	}
	byCount := func(a, b history.Turns) int { return a.Count - b.Count }
	least, most := slices.MinFunc(f.stats.Turns, byCount).Count, slices.MaxFunc(f.stats.Turns, byCount).Count
	short := number(most) + " : 0"
	if least > 0 {
		short = fmt.Sprintf("%.2f : 1", float64(most)/float64(least))
	}
	return answer{"Fair?", "", short, fmt.Sprintf("%s to %s turns of a worker, Jain's index %.2f", number(least), number(most), f.stats.Fairness)}
}

// titles are what people call a violation of a rule.
var titles = map[string]string{
	history.Overlap:    "More than one holder",
	history.TokenOrder: "Token out of order",
	history.LateLoss:   "Loss signalled too late",
}

func (m mark) title() string {
	title := titles[m.Rule]
	if title == "" && m.Rule != "" {
		title = strings.ToUpper(m.Rule[:1]) + m.Rule[1:]
	}
	if m.expected {
		title += ", expected"
	}
	return title
}

// story tells what a mark is about in the words of the workers, and else in those of the judge.
func (f *facts) story(m mark) string {
	if m.before < 0 || m.after < 0 {
		return sentence(m.Text)
	}
	before, after := f.granted[m.before], f.granted[m.after]
	text := ""
	switch m.Rule {
	case history.Overlap:
		text = fmt.Sprintf("%s and %s both held %s for %s, %s into the run", before.Worker, after.Worker, m.Name, span(m.to-m.At), moment(m.At))
		if before.Worker == after.Worker {
			text = fmt.Sprintf("%s held %s twice for %s, %s into the run", before.Worker, m.Name, span(m.to-m.At), moment(m.At))
		}
	case history.TokenOrder:
		text = fmt.Sprintf("%s was granted %s with token %d; %s had been granted it with token %d", after.Worker, m.Name, after.Token, before.Worker, before.Token)
	case history.LateLoss:
		i := slices.IndexFunc(f.losses, func(x loss) bool { return x.holder == m.before })
		if i < 0 {
			return sentence(m.Text)
		}
		text = fmt.Sprintf("%s was told that it had lost %s %s after %s was granted it", before.Worker, m.Name, span(-f.losses[i].margin), after.Worker)
	default:
		return sentence(m.Text)
	}
	if k := f.cause(m.At, before.Worker); k >= 0 {
		text += fmt.Sprintf(", after %s (%s)", id("F", k), f.Faults[k].What)
	}
	return sentence(text)
}
