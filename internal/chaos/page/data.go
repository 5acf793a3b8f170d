package page

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
	"time"
)

// data returns what the script draws, as JSON that may stand in a script element. Acquisitions,
// waits and refused writes are base64 of varints: 100,000 acquisitions take less than 1.5 MB. Tokens
// are strings or differences, because a number of JavaScript is too narrow for those of PostgreSQL.
func (f *facts) data() string {
	locks, workers, faults, marks, losses := []string{}, [][2]string{}, []any{}, []any{}, []any{}
	for _, l := range f.locks {
		locks = append(locks, l.name)
	}
	for _, w := range f.workers {
		workers = append(workers, [2]string{w.Name, w.Host})
	}
	for _, x := range f.Faults {
		lanes := []int{}
		for i, w := range f.workers {
			if hits(x, w.Name) {
				lanes = append(lanes, i)
			}
		}
		faults = append(faults, map[string]any{"what": x.What, "from": x.From.Microseconds(), "to": x.To.Microseconds(), "lanes": lanes})
	}
	// A and b are acquisitions, or -1.
	dot := func(id, title string, at, to time.Duration, a, b int, bad bool) map[string]any {
		return map[string]any{"id": id, "title": title, "at": at.Microseconds(), "to": to.Microseconds(), "a": a, "b": b, "bad": bad}
	}
	for _, m := range f.marks[:min(len(f.marks), mostMarks)] {
		marks = append(marks, dot(m.id, m.title(), m.At, m.to, m.before, m.after, !m.expected))
	}
	for _, x := range f.losses {
		d := dot(x.id, "Loss signalled late", x.stopped, f.granted[x.holder].Lost, x.holder, x.next, x.class == "bad")
		d["margin"], d["late"] = span(max(x.margin, -x.margin)), x.margin < 0
		losses = append(losses, d)
	}
	text, err := json.Marshal(map[string]any{
		"start": f.start.Microseconds(), "end": f.stop.Microseconds(), "base": strconv.FormatInt(f.base, 10), "colours": colours, "rows": lockRows,
		"locks": locks, "workers": workers, "faults": faults, "marks": marks, "losses": losses,
		"granted": f.packGranted(), "failed": f.packFailed(), "refused": f.packRefused(),
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
	shared   = 1 << iota
	lost     // the time of the signal follows
	outlived // the holder ended after it stopped relying on the lock; how long after follows
	died     // the process of the holder died before the end of the run
	flags    = iota
)

// A packer writes numbers as varints. Times are microseconds since the time before.
type packer struct {
	text []byte
	last int64
}

func (p *packer) number(n int64)       { p.text = binary.AppendUvarint(p.text, uint64(max(0, n))) }
func (p *packer) signed(n int64)       { p.text = binary.AppendVarint(p.text, n) }
func (p *packer) span(d time.Duration) { p.number(d.Microseconds()) }
func (p *packer) time(t time.Duration) {
	p.signed(t.Microseconds() - p.last)
	p.last = t.Microseconds()
}

func (f *facts) packGranted() []byte {
	p := packer{}
	before := make([]int64, len(f.locks)) // the last token of each lock
	for _, a := range f.granted {
		place, flag, end := f.places[a.Name], int64(0), f.end(a)
		for bit, set := range map[int64]bool{shared: a.Shared, lost: a.Lost > 0, outlived: a.Ended > end+time.Microsecond, died: a.Died > 0 && a.Died < f.Length} {
			if set {
				flag |= bit
			}
		}
		p.number(int64(f.lanes[a.Worker]))
		p.number(int64(place)<<flags | flag)
		p.time(a.Returned)
		p.span(a.Returned - a.Called)
		p.span(end - a.Returned)
		if flag&lost != 0 {
			p.span(a.Lost - a.Returned)
		}
		if flag&outlived != 0 {
			p.span(a.Ended - end)
		}
		p.signed(a.Token - before[place]) // may wrap around, as the sum of the script does
		before[place] = a.Token
	}
	return p.text
}

// packFailed packs the waits that ended without a grant.
func (f *facts) packFailed() []byte {
	p := packer{}
	for _, w := range f.Waits {
		if !w.Granted {
			p.number(int64(f.lanes[w.Worker]))
			p.number(int64(f.places[w.Name]))
			p.time(w.From)
			p.span(w.To - w.From)
		}
	}
	return p.text
}

// packRefused packs the writes that the guard refused.
func (f *facts) packRefused() []byte {
	p := packer{}
	for _, w := range f.Writes {
		if lane, ok := f.lanes[w.Worker]; ok && w.Refused {
			p.number(int64(lane))
			p.time(w.At)
		}
	}
	return p.text
}
