package page

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// A dot is a violation or a loss in the timeline. A and B are acquisitions, or -1.
type dot struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	At     int64  `json:"at"`
	To     int64  `json:"to"`
	A      int    `json:"a"`
	B      int    `json:"b"`
	Bad    bool   `json:"bad"`
	Margin string `json:"margin,omitempty"` // of a loss
	Late   bool   `json:"late,omitempty"`   // the margin is negative
	Cause  string `json:"cause,omitempty"`  // of a loss
}

// data returns what the script draws, as JSON that may stand in a script element. Times are
// microseconds, those of grants since the grant before. Tokens are strings, because a number of
// JavaScript is too narrow for those of PostgreSQL.
func (f *facts) data() string {
	granted, faults, marks, losses, failed, refused := make([][9]any, 0, len(f.granted)), []any{}, []dot{}, []dot{}, [][4]int64{}, [][2]int64{}
	last, tokens := time.Duration(0), make([]int64, len(f.locks)) // of the grant before, and of that of each lock
	for _, a := range f.granted {
		lock, stopped := f.places[a.Name], end(a)
		granted = append(granted, [9]any{
			f.lanes[a.Worker], lock, a.Shared, a.Died > 0 && a.Died < f.Length, // it died before the end of the run
			(a.Returned - last).Microseconds(), (a.Returned - a.Called).Microseconds(), (stopped - a.Returned).Microseconds(),
			max(0, max(a.Lost, a.Ended)-stopped).Microseconds(), // how long it went on after it stopped relying on the lock
			strconv.FormatInt(a.Token-tokens[lock], 10),         // may wrap around, as the sum of the script does
		})
		last, tokens[lock] = a.Returned, a.Token
	}
	for _, x := range f.Faults {
		faults = append(faults, map[string]any{"what": x.What, "from": x.From.Microseconds(), "to": x.To.Microseconds(), "lanes": f.hit(x)})
	}
	for _, m := range f.marks[:min(len(f.marks), mostMarks)] {
		marks = append(marks, dot{ID: m.id, Title: m.title(), At: m.At.Microseconds(), To: m.to.Microseconds(), A: m.before, B: m.after, Bad: m.class == "bad"})
	}
	for i, l := range f.Losses() {
		d := dot{ID: id("L", i), Title: "Loss signalled late", At: l.Stopped().Microseconds(), To: l.Lost.Microseconds(), A: f.find(l.ID), B: -1}
		d.Cause = strings.TrimPrefix(l.Cause+f.cause(l.Stopped(), l.Worker), ", ")
		if l.Next != nil {
			d.B, d.Late, d.Margin = f.find(l.Next.ID), l.Margin() < 0, span(max(l.Margin(), -l.Margin()))
		}
		d.Bad = d.Late && !f.Rules.TwoHolders
		losses = append(losses, d)
	}
	for _, w := range f.Waits {
		if !w.Granted {
			failed = append(failed, [4]int64{int64(f.lanes[w.Worker]), int64(f.places[w.Name]), w.From.Microseconds(), w.To.Microseconds()})
		}
	}
	for _, w := range f.Writes {
		if lane, ok := f.lanes[w.Worker]; ok && w.Refused {
			refused = append(refused, [2]int64{int64(lane), w.At.Microseconds()})
		}
	}
	text, err := json.Marshal(map[string]any{
		"start": f.start.Microseconds(), "end": f.stop.Microseconds(), "base": strconv.FormatInt(f.base, 10), "colours": colours, "rows": lockRows,
		"locks": f.locks, "workers": f.Workers, "faults": faults, "marks": marks, "losses": losses,
		"granted": granted, "failed": failed, "refused": refused,
	})
	if err != nil {
		panic(err) // it is made of strings, numbers and slices
	}
	return string(text)
}

// colours is how many locks have a colour of their own; the next one has that of the first.
const colours = 5

// mostMarks is how many violations the timeline shows.
const mostMarks = 2000
