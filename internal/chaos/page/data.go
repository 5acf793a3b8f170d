package page

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
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
}

// data returns what the script draws, as JSON that may stand in a script element. Acquisitions are
// base64 of varints: 100,000 of them take less than 1.5 MB. Tokens are strings or differences,
// because a number of JavaScript is too narrow for those of PostgreSQL. Times are microseconds.
func (f *facts) data() string {
	faults, marks, losses, failed, refused := []any{}, []dot{}, []dot{}, [][4]int64{}, [][2]int64{}
	for _, x := range f.Faults {
		faults = append(faults, map[string]any{"what": x.What, "from": x.From.Microseconds(), "to": x.To.Microseconds(), "lanes": f.hit(x)})
	}
	for _, m := range f.marks[:min(len(f.marks), mostMarks)] {
		marks = append(marks, dot{m.id, m.title(), m.At.Microseconds(), m.to.Microseconds(), m.before, m.after, m.class == "bad", "", false})
	}
	for _, x := range f.losses {
		losses = append(losses, dot{x.id, "Loss signalled late", x.stopped.Microseconds(), f.granted[x.holder].Lost.Microseconds(),
			x.holder, x.next, x.bad, span(max(x.margin, -x.margin)), x.margin < 0})
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
		"granted": f.packGranted(), "failed": failed, "refused": refused,
	})
	if err != nil {
		panic(err) // it is made of strings, numbers and slices
	}
	return string(text)
}

// mostMarks is how many violations the timeline shows.
const mostMarks = 2000

// The flags of a packed acquisition.
const (
	shared = 1
	died   = 2 // the process of the holder died before the end of the run
	flags  = 2 // how many bits they are
)

// packGranted writes the acquisitions as varints. A grant's time and its token are the differences
// from those of the grant before.
func (f *facts) packGranted() (text []byte) {
	var last int64
	tokens := make([]int64, len(f.locks)) // the last one of each lock
	number := func(n int64) { text = binary.AppendUvarint(text, uint64(max(0, n))) }
	span := func(d time.Duration) { number(d.Microseconds()) }
	for _, a := range f.granted {
		place, end, flag := f.places[a.Name], f.end(a), 0
		if a.Shared {
			flag |= shared
		}
		if a.Died > 0 && a.Died < f.Length {
			flag |= died
		}
		number(int64(f.lanes[a.Worker]))
		number(int64(place<<flags | flag))
		text = binary.AppendVarint(text, a.Returned.Microseconds()-last)
		span(a.Returned - a.Called)
		span(end - a.Returned)
		span(max(a.Lost, a.Ended) - end)                        // how long it went on after it stopped relying on the lock
		text = binary.AppendVarint(text, a.Token-tokens[place]) // may wrap around, as the sum of the script does
		last, tokens[place] = a.Returned.Microseconds(), a.Token
	}
	return text
}
