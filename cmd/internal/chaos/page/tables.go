package page

import (
	"fmt"
	"time"
)

// rows is how many rows of a table the page has. The file with the history has all of them.
const rows = 50

// A row of a table is something that happened. Class is bad, expected, or empty.
type row struct {
	class, id, what, text string
	from, to              time.Duration
}

// table writes a section with a table, unless it is empty.
func (s sheet) table(f *facts, class, title, note string, all []row) {
	if len(all) == 0 {
		return
	}
	s.add("<section class=\"%s\"><h2>%s <small>%s</small></h2>\n<table><caption>%s, in the order of time</caption>", class, title, note, title)
	s.add("<thead><tr><th scope=\"col\">id</th><th scope=\"col\">at</th><th scope=\"col\">what</th></tr></thead><tbody>\n")
	for _, r := range all[:min(rows, len(all))] {
		s.add(`<tr class="%s"><th scope="row"><a href="%s">%s</a></th><td class="at">%s</td><td class="tell"><b>%s</b> %s</td></tr>`+"\n",
			r.class, f.link(r.from, r.to), r.id, moment(r.from), r.what, r.text)
	}
	s.add("</tbody></table>\n")
	if len(all) > rows {
		s.add("<p class=\"hint\">The first %d of %s. The history has all of them.</p>\n", rows, number(len(all)))
	}
	s.add("</section>\n")
}

// link opens the timeline at a period, with some time around it.
func (f *facts) link(from, to time.Duration) string {
	around := max(2*(to-from), f.Length/200, 5*time.Millisecond)
	return fmt.Sprintf("#t=%.6f,%.6f", max(f.start, from-around).Seconds(), min(f.stop, to+around).Seconds())
}

func (s sheet) violations(f *facts) {
	note := number(len(f.Violations))
	if n := len(f.Expected); n > 0 {
		note += fmt.Sprintf(", and %s that these faults can cause, as the engine's page says", count(n, "finding"))
	}
	var all []row
	for _, m := range f.marks {
		all = append(all, row{m.class, m.id, m.title(), f.story(m), m.At, m.to})
	}
	s.table(f, "violations", "Violations", note, all)
}

func (s sheet) faults(f *facts) {
	var all []row
	for i, x := range f.Faults {
		text := x.Text
		if x.To > x.From {
			text += ", for " + span(x.To-x.From)
		}
		all = append(all, row{"", id("F", i), x.What, text, x.From, x.To})
	}
	s.table(f, "faults", "Faults", number(len(f.Faults)), all)
}
