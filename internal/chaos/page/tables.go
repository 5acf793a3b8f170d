package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// rows is how many rows of a table the page has. The file with the history has all of them.
const rows = 50

// table writes a section with a table, unless it is empty. Caption is what a screen reader says; a
// column that begins with # is a number.
func table[T any](s sheet, class, title, note, caption string, all []T, columns []string, row func(i int, x T)) {
	if len(all) == 0 {
		return
	}
	s.add("<section class=\"%s\"><h2>%s <small>%s</small></h2>\n<table><caption>%s</caption><thead><tr>", class, title, note, caption)
	for _, c := range columns {
		name, isNumber := strings.CutPrefix(c, "#")
		s.add(`<th scope="col" class="%s">%s</th>`, map[bool]string{true: "n"}[isNumber], name)
	}
	s.add("</tr></thead><tbody>\n")
	for i, x := range all[:min(rows, len(all))] {
		row(i, x)
	}
	s.add("</tbody></table>\n")
	if len(all) > rows {
		s.add("<p class=\"hint\">The first %d of %s. The history has all of them.</p>\n", rows, number(len(all)))
	}
	s.add("</section>\n")
}

func (s sheet) violations(f *facts) {
	title, note := "Violations", number(f.bad)
	if f.bad == 0 {
		title, note = "Findings", "possible with these faults, as the engine's page says"
	} else if f.bad < len(f.marks) {
		note += fmt.Sprintf(", and %s that these faults can cause, as the engine's page says", count(len(f.marks)-f.bad, "finding"))
	}
	table(s, "violations", title, note, title+", in the order of time", f.marks, []string{"id", "at", "what", "workers", "tokens"}, func(_ int, m mark) {
		var workers, tokens []string
		for _, i := range []int{m.before, m.after} {
			if i >= 0 {
				workers, tokens = append(workers, f.granted[i].Worker), append(tokens, fmt.Sprint(f.granted[i].Token))
			}
		}
		s.add(`<tr class="%s"><th scope="row"><a href="%s">%s</a></th><td class="at">%s</td><td class="tell"><b>%s</b> %s</td><td>%s</td><td>%s</td></tr>`+"\n",
			m.class(), f.link(m.At, m.to), m.id, moment(m.At), m.title(), f.story(m), strings.Join(workers, ", "), strings.Join(tokens, ", "))
	})
}

// link opens the timeline at a period, with some time around it.
func (f *facts) link(from, to time.Duration) string {
	around := max(2*(to-from), f.Length/200, 5*time.Millisecond)
	return fmt.Sprintf("#t=%.6f,%.6f", max(f.start, from-around).Seconds(), min(f.stop, to+around).Seconds())
}

func (s sheet) losses(f *facts) {
	widest := time.Duration(1)
	for _, x := range f.losses[:min(rows, len(f.losses))] {
		widest = max(widest, x.margin, -x.margin)
	}
	note := "◆ is when the holder stopped relying on the lock; left of the line is before the next grant"
	table(s, "losses", "Losses", note, "Lost locks, in the order of time", f.losses, []string{"id", "at", "what", "diagram", "#margin"}, func(_ int, x loss) {
		a := f.granted[x.holder]
		s.add(`<tr><th scope="row"><a href="%s">%s</a></th><td class="at">%s</td><td class="tell"><b>%s lost %s</b> %s</td>`,
			f.link(x.stopped, max(a.Lost, x.stopped+x.margin)), x.id, moment(x.stopped), a.Worker, a.Name, f.tell(x))
		if x.next < 0 {
			s.add("<td></td><td class=\"n\"></td></tr>\n")
			return
		}
		at := 80 - 70*float64(x.margin)/float64(widest)
		s.add(`<td><svg class="margin %s" viewBox="0 0 160 14" aria-hidden="true"><path class="axis" d="M0 7H160"/><path class="span" d="M%.1f 7H80"/><path class="zero" d="M80 0V14"/><path class="dot" d="M%.1f 2l5 5-5 5-5-5z"/></svg></td><td class="n %s">%s</td></tr>`+"\n",
			x.class, at, at, x.class, span(x.margin))
	})
}

// tell tells a loss: when the holder stopped, who came next, and why.
func (f *facts) tell(x loss) string {
	a := f.granted[x.holder]
	what, parts := "It was signalled", []string{}
	frozen := a.Lost-x.stopped > 10*time.Millisecond // a timer can be late, too
	if frozen {
		what = "Its deadline passed"
	}
	switch {
	case x.next < 0:
		parts = append(parts, "No worker acquired the lock after it.")
	case x.margin < 0:
		parts = append(parts, fmt.Sprintf("%s %s after %s was granted the lock.", what, span(-x.margin), f.granted[x.next].Worker))
	default:
		parts = append(parts, fmt.Sprintf("%s %s before %s was granted the lock.", what, span(x.margin), f.granted[x.next].Worker))
	}
	if frozen {
		parts = append(parts, fmt.Sprintf("The signal came %s after the deadline, when the process ran again.", span(a.Lost-x.stopped)))
	}
	refused := 0
	for _, w := range f.Writes {
		if w.Refused && w.Token == a.Token && w.Name == a.Name && w.Worker == a.Worker {
			refused++
		}
	}
	if refused > 0 {
		parts = append(parts, fmt.Sprintf("The guard refused %s with its token.", count(refused, "write")))
	}
	if k := f.cause(x.stopped, a.Worker); k >= 0 {
		parts = append(parts, fmt.Sprintf("Fault: %s, %s.", id("F", k), f.Faults[k].What))
	}
	if a.Cause != "" {
		_, why, ok := strings.Cut(a.Cause, " was lost: ") // the rest of the error is said already
		if !ok {
			why = a.Cause
		}
		parts = append(parts, sentence("Cause: "+why))
	}
	return strings.Join(parts, " ")
}

func (s sheet) faults(f *facts) {
	columns := []string{"id", "fault", "#at", "#for", "locks held", "#next grant after", "#nobody held", "losses"}
	table(s, "faults", "Faults", "and how soon the locks that they hit had a holder again", "Faults, in the order of time", f.Faults, columns, func(i int, x history.Fault) {
		e := f.effect(i, x)
		what := strings.TrimPrefix(sentence(x.Text), x.What+" ")
		if what == "" {
			what = strings.Join(append(slices.Clone(x.Workers), x.Server), " ")
		}
		length := ""
		if x.To > x.From {
			length = span(x.To - x.From)
		}
		s.add(`<tr><th scope="row"><a href="%s">%s</a></th><td class="tell"><b>%s</b> %s</td><td class="n" data-label="at">%s</td><td class="n" data-label="for">%s</td>`,
			f.link(x.From, x.To), id("F", i), x.What, what, moment(x.From), length)
		s.add("<td data-label=\"locks held\">%s</td><td class=\"n\" data-label=\"next grant after\">%s</td><td class=\"n\" data-label=\"nobody held\">%s</td><td data-label=\"losses\">%s</td></tr>\n",
			strings.Join(e.held, ", "), e.next, e.nobody, strings.Join(e.losses, ", "))
	})
}

// An effect is what a fault did to the locks that its workers held.
type effect struct {
	held, losses []string
	next, nobody string // of the lock that had no new holder for longest
}

func (f *facts) effect(i int, x history.Fault) (e effect) {
	var next, nobody time.Duration
	for _, l := range f.locks {
		for k, n := range l.granted {
			a := f.granted[n]
			if a.Returned > x.From {
				break
			}
			if max(f.end(a), a.Ended) < x.From || !hits(x, a.Worker) {
				continue
			}
			e.held = append(e.held, l.name+" by "+a.Worker)
			if after := f.next(l, k); after >= 0 {
				next = max(next, f.granted[after].Returned-x.From)
				nobody = max(nobody, f.granted[after].Returned-max(x.From, f.end(a)))
				e.next, e.nobody = span(next), span(nobody)
			}
		}
	}
	for _, l := range f.losses {
		if f.cause(l.stopped, f.granted[l.holder].Worker) == i {
			e.losses = append(e.losses, l.id)
		}
	}
	return e
}

func (s sheet) turns(f *facts) {
	waits, most := make([][]time.Duration, len(f.workers)), 1
	for _, a := range f.granted {
		lane := f.lanes[a.Worker]
		waits[lane] = append(waits[lane], a.Returned-a.Called)
		most = max(most, len(waits[lane]))
	}
	table(s, "turns", "Turns", "of all locks", "Acquisitions and waits of each worker", f.workers, []string{"worker", "share", "#turns", "#wait p50", "#p99", "#longest"}, func(i int, w history.Worker) {
		all := waits[i]
		slices.Sort(all)
		s.add(`<tr><th scope="row">%s <span>%s</span></th><td class="bar"><i style="width:%.1f%%"></i></td><td class="n">%s</td>`,
			w.Name, w.Host, 100*float64(len(all))/float64(most), number(len(all)))
		for _, percent := range []int{50, 99, 100} {
			text := ""
			if len(all) > 0 {
				text = span(all[(len(all)-1)*percent/100])
			}
			s.add(`<td class="n">%s</td>`, text)
		}
		s.add("</tr>\n")
	})
}
