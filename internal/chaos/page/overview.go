package page

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// colours is how many colours locks have. The sixth lock has the colour of the first.
const colours = 5

// The overview is a picture of this width, with this many units for a row and a lane.
const (
	width    = 1200
	rowUnit  = 10
	laneUnit = 10
	bar      = 7
)

// overview draws the whole run: a row for each lock and a lane for each worker. The script lays the
// frame of the view over it; without JavaScript it is the timeline, with names beside it.
func (s sheet) overview(f *facts) {
	locks := f.locks[:min(len(f.locks), lockRows)]
	top := len(locks)*rowUnit + 4
	height := top + len(f.workers)*laneUnit
	s.add(`<div class="overview" id="overview"><ol class="names no-js" aria-hidden="true" style="height:%dpx">`, 2*height)
	for i, l := range locks {
		s.add(`<li style="top:%.2f%%">%s</li>`, 100*float64(i*rowUnit)/float64(height), l.name)
	}
	for i, w := range f.workers {
		s.add(`<li style="top:%.2f%%">%s</li>`, 100*float64(top+i*laneUnit)/float64(height), w.Name)
	}
	s.add("</ol><div class=\"strip\" id=\"strip\" style=\"--full:%dpx\"><div class=\"flags\">", 2*height)
	s.flags(f)
	s.add(`</div><svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="Holds of each lock and of each worker over the whole run">`, width, height)
	for _, x := range f.faults {
		for i, w := range f.workers {
			if hits(x, w.Name) {
				s.add(`<path class="fault" d="%s"/>`, box(f.x(x.From), top+i*laneUnit-1, max(2, f.x(x.To)-f.x(x.From)), laneUnit))
			}
		}
	}
	s.beads(f, locks, top)
	for _, x := range f.losses {
		a := f.granted[x.holder]
		s.add(`<path class="after" d="%s"/>`, box(f.x(x.stopped), top+f.lanes[a.Worker]*laneUnit, max(3, f.x(max(a.Ended, a.Lost))-f.x(x.stopped)), bar))
	}
	for _, v := range f.marks[:min(rows, len(f.marks))] {
		s.add(`<path class="%s" d="%s"/>`, map[bool]string{false: "broken", true: "after"}[v.expected], box(f.x(v.At)-1.5, 0, 3, height))
	}
	s.add(`</svg><div class="frame js-only" id="frame" hidden><i></i><i></i></div><div class="ticks" aria-hidden="true">`)
	step := tick(f.Length)
	for t := time.Duration(0); step > 0 && t <= f.Length; t += step {
		s.add(`<span style="left:%.2f%%">%s</span>`, 100*float64(t)/float64(f.Length), span(t))
	}
	s.add("</div></div></div>\n")
}

func box(x float64, y int, w float64, h int) raw {
	return raw(fmt.Sprintf("M%.1f %dh%.1fv%dh-%.1fz", x, y, w, h, w))
}

// x is the place of a time in the overview.
func (f *facts) x(t time.Duration) float64 {
	return width * float64(min(max(t, 0), f.Length)) / float64(max(1, f.Length))
}

// tick returns a round period that divides a length into four to ten.
func tick(length time.Duration) time.Duration {
	for unit := time.Microsecond; unit < 1000*time.Hour; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if length <= 8*n*unit {
				return n * unit
			}
		}
	}
	return 0
}

// flags writes the ids of faults, losses and violations over the overview, those that have room;
// violations come first.
func (s sheet) flags(f *facts) {
	var taken []float64
	put := func(class, id string, t time.Duration) {
		x := 100 * f.x(t) / width
		for _, other := range taken {
			if math.Abs(other-x) < 3.2 {
				return
			}
		}
		taken = append(taken, x)
		s.add(`<span class="%s" style="left:%.2f%%">%s</span>`, class, x, id)
	}
	for _, v := range f.marks[:min(rows, len(f.marks))] {
		put(map[bool]string{false: "bad", true: "lost"}[v.expected], v.id, v.At)
	}
	for _, x := range f.losses[:min(rows, len(f.losses))] {
		put("lost", x.id, x.stopped)
	}
	for i, x := range f.faults[:min(rows, len(f.faults))] {
		put("", id("F", i), x.From)
	}
}

// A bead row sums the holds that are too narrow to be drawn as themselves: the share of time held
// in each column. The columns get wider with the number of rows, so that the picture has a bound.
type beadRow struct {
	wide []string
	sum  []map[int]float64 // of each column, by the colour
}

func (s sheet) beads(f *facts, locks []lock, top int) {
	step := 3.0
	if n := len(locks) + len(f.workers); n > 24 {
		step = float64(n) / 8
	}
	all := make([]beadRow, len(locks)+len(f.workers))
	for _, a := range f.granted {
		n := f.places[a.Name]
		if n < len(locks) {
			all[n].add(f, a, n*rowUnit, n%colours, step)
		}
		lane := f.lanes[a.Worker]
		all[len(locks)+lane].add(f, a, top+lane*laneUnit, n%colours, step)
	}
	for i, r := range all {
		y := i * rowUnit
		if i >= len(locks) {
			y = top + (i-len(locks))*laneUnit
		}
		r.draw(s, y, step)
	}
}

func (r *beadRow) add(f *facts, a history.Acquisition, y, colour int, step float64) {
	from, to := f.x(a.Returned), f.x(f.end(a))
	if to-from >= step {
		r.wide = append(r.wide, fmt.Sprintf(`<path class="c%d" d="%s"/>`, colour, box(from, y, to-from, bar)))
		return
	}
	if r.sum == nil {
		r.sum = make([]map[int]float64, int(width/step)+1)
	}
	column := int(from / step)
	if r.sum[column] == nil {
		r.sum[column] = map[int]float64{}
	}
	r.sum[column][colour] += (to - from) / step
}

// draw draws the sums as beads, one path for each colour, and the wide holds over them.
func (r *beadRow) draw(s sheet, y int, step float64) {
	var paths [colours]strings.Builder
	for column, shares := range r.sum {
		best, total := -1, 0.0
		for colour := range colours {
			if share, ok := shares[colour]; ok {
				total += share
				if best < 0 || share > shares[best] {
					best = colour
				}
			}
		}
		if best >= 0 {
			high := max(1.5, bar*math.Sqrt(min(1, total)))
			fmt.Fprintf(&paths[best], "M%.0f %.1fv%.1f", (float64(column)+.5)*step, float64(y)+(bar-high)/2, high)
		}
	}
	for colour := range paths {
		if paths[colour].Len() > 0 {
			s.add(`<path class="bead c%d" d="%s"/>`, colour, raw(paths[colour].String()))
		}
	}
	for _, path := range r.wide {
		s.add("%s", raw(path))
	}
}
