package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	colours = 5    // of the locks; the sixth has the colour of the first
	width   = 1200 // of the overview
	unit    = 10   // of it, from one row to the next
	bar     = 7    // the height of a hold in a row
)

// overview draws the whole run, with a row for each lock and one for each worker. It is the timeline
// of a page without JavaScript, with names beside it. The script makes it flat, and lays a frame over
// what the canvas shows.
func (s sheet) overview(f *facts) {
	names := slices.Clone(f.locks[:min(len(f.locks), lockRows)])
	lanes := len(names) // above those of the workers
	for _, w := range f.Workers {
		names = append(names, w.Name)
	}
	height := unit * len(names)
	s.add(`<div class="overview" style="--full:%dpx"><ol class="names no-js" aria-hidden="true">`, 2*height)
	for _, name := range names {
		s.add("<li>%s</li>", name)
	}
	s.add(`</ol><div class="strip" id="strip"><div class="flags">`)
	s.flags(f)
	s.add(`</div><svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="Holds of each lock and of each worker over the whole run">`, width, height)
	for _, x := range f.Faults {
		for _, lane := range f.hit(x) {
			s.box("fault", f.x(x.From), f.x(x.To), 2, unit*float64(lanes+lane), unit)
		}
	}
	s.holds(f, lanes)
	for _, x := range f.losses {
		s.box("after", f.x(x.Stopped()), f.x(max(x.Ended, x.Lost)), 3, unit*float64(lanes+f.lanes[x.Worker])+1.5, bar)
	}
	last := -3.0
	for _, m := range f.marks { // one for each place
		if x := f.x(m.At) - 1.5; x >= last+3 {
			s.box(m.class, x, 0, 3, 0, float64(height))
			last = x
		}
	}
	s.add(`</svg><div class="frame js-only" id="frame" hidden><i></i><i></i></div><div class="ticks" aria-hidden="true">`)
	step := time.Millisecond
	for i := 0; f.stop-f.start > 8*step; i++ {
		step = step * []time.Duration{4, 5, 4}[i%3] / 2 // 2, 5, 10, 20 ... ms
	}
	for t := time.Duration(0); t <= f.stop; t += step {
		s.add(`<span style="left:%.2f%%">%s</span>`, 100*f.x(t)/width, span(t))
	}
	s.add("</div></div></div>\n")
}

// x is the place of a time in the overview.
func (f *facts) x(t time.Duration) float64 {
	return width * float64(min(max(t, f.start), f.stop)-f.start) / float64(f.stop-f.start)
}

// box draws a box with a least width.
func (s sheet) box(class string, from, to, least, y, high float64) {
	wide := max(least, to-from)
	s.add(`<path class="%s" d="M%.1f %.1fh%.1fv%.1fh-%.1fz"/>`, class, from, y, wide, high, wide)
}

// flags writes the names of violations, losses and faults over the overview, as far as there is room.
func (s sheet) flags(f *facts) {
	var taken []float64
	put := func(class, id string, t time.Duration) {
		x := 100 * f.x(t) / width
		for _, other := range taken {
			if math.Abs(other-x) < 2+.6*float64(len(id)) {
				return
			}
		}
		taken = append(taken, x)
		s.add(`<span class="%s" style="left:%.2f%%">%s</span>`, class, x, id)
	}
	for _, m := range f.marks {
		put(m.class, m.id, m.At)
	}
	for _, x := range f.losses {
		put("after", x.id, x.Stopped())
	}
	for i, x := range f.Faults {
		put("", id("F", i), x.From)
	}
}

// A bead sums the holds in a column of a row. Its colour is that of the longest of them.
type bead struct {
	share, longest float64
	colour         int
}

// holds draws each column of a row as a bead, whose height tells for which share of the time a lock
// was held: a long hold becomes a bar. The more rows, the wider are the columns, so that the picture
// stays small. Lanes is the row of the first worker.
func (s sheet) holds(f *facts, lanes int) {
	beads := make([][]bead, lanes+len(f.Workers))
	column := max(3, float64(len(beads))/8)
	for row := range beads {
		beads[row] = make([]bead, int(width/column)+1)
	}
	for _, a := range f.granted {
		place, from, to := f.places[a.Name], f.x(a.Returned)/column, f.x(end(a))/column
		for i := int(from); i <= int(to); i++ {
			share := min(to, float64(i+1)) - max(from, float64(i))
			beads[lanes+f.lanes[a.Worker]][i].add(share, place)
			if place < lanes {
				beads[place][i].add(share, place)
			}
		}
	}
	for row, columns := range beads {
		var paths [colours]strings.Builder
		for i, b := range columns {
			if b.share > 0 {
				high := max(1.5, bar*math.Sqrt(min(1, b.share)))
				fmt.Fprintf(&paths[b.colour], "M%.1f %.1fv%.1f", (float64(i)+.5)*column, unit*(float64(row)+.5)-high/2, high)
			}
		}
		for colour := range paths {
			if d := paths[colour].String(); d != "" {
				s.add(`<path class="bead c%d" style="stroke-width:%.1f" d="%s"/>`, colour, column, raw(d))
			}
		}
	}
}

func (b *bead) add(share float64, place int) {
	b.share += share
	if share >= b.longest {
		b.longest, b.colour = share, place%colours
	}
}
