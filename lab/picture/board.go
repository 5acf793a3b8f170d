package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Board is what the panels of a board of Grafana showed during a run.
type Board struct {
	Measured string
	Step     float64 // seconds between two values
	Events   []BoardEvent
	Rows     []BoardRow
}

// BoardEvent is what happened during the run.
type BoardEvent struct {
	At   float64 // in seconds
	What string
}

// BoardRow is a row of panels.
type BoardRow struct {
	Title  string
	Panels []BoardPanel
}

// BoardPanel is a panel: a "stat", of which the greatest value is drawn, a "timeseries", or a
// "state-timeline".
type BoardPanel struct {
	Title, Kind, Unit string
	Series            []BoardSeries
}

// BoardSeries is a curve.
type BoardSeries struct {
	Name   string
	Values string // with spaces in between; - for none
}

// numbers returns the values. None is NaN.
func (s BoardSeries) numbers() (all []float64) {
	for word := range strings.FieldsSeq(s.Values) {
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			v = math.NaN()
		}
		all = append(all, v)
	}
	return all
}

// most returns the greatest value.
func (s BoardSeries) most() (most float64) {
	for _, v := range s.numbers() {
		if v > most { // not if v is NaN
			most = v
		}
	}
	return most
}

// most returns the greatest value of a panel.
func (p BoardPanel) most() (most float64) {
	for _, s := range p.Series {
		most = max(most, s.most())
	}
	return most
}

// boardColours are those of the curves of a panel, in order.
var boardColours = []string{"blue", "green", "amber", "red", "grey"}

// draw draws the rows below each other, three stats or two other panels side by side.
func (b Board) draw() []byte {
	const title = "The board during a deployment and four faults"
	const gap = 8.0
	c := new(canvas)
	y := c.heading(title, b.Measured)
	said := []string{"Panels of the board over one run; numbers are the greatest values. Events:"}
	events := ""
	for i, e := range b.Events {
		events += fmt.Sprintf("%d %s. ", i+1, e.What)
		said = append(said, fmt.Sprintf("%d, at %.0f s, %s;", i+1, e.At, e.What))
	}
	for _, line := range wrap(events, 78) {
		c.text(16, y, "small", line)
		y += 18
	}
	for _, row := range b.Rows {
		y += 16
		c.text(16, y, "bold", row.Title)
		y += gap
		x, high := 12.0, 0.0
		for _, p := range row.Panels {
			wide, h := (width-24-gap)/2, 146.0
			if p.Kind == "stat" {
				wide, h = (width-24-2*gap)/3, 52.0
			}
			if x+wide > width-11 || high > 0 && h != high {
				x, y = 12, y+high+gap
			}
			said = append(said, b.panel(c, p, x, y, wide, h))
			x, high = x+wide+gap, h
		}
		y += high + gap
	}
	return c.svg(y+4, title, strings.Join(said, " "))
}

// panel draws a panel at a place and returns what it shows.
func (b Board) panel(c *canvas, p BoardPanel, left, top, wide, high float64) string {
	c.rect(left, top, wide, high, "back")
	c.text(left+8, top+17, "small bold", p.Title)
	switch p.Kind {
	case "stat":
		most := p.most()
		if p.Unit != "s" { // Prometheus extrapolates: 3 losses may be 3.07
			most = math.Round(most)
		}
		c.text(left+8, top+40, "bold", quantity(most, p.Unit))
		return fmt.Sprintf("%s: up to %s.", p.Title, quantity(most, p.Unit))
	case "state-timeline":
		b.states(c, p, left, top, wide, high)
	default: // the legend has place for a few, so the greatest come first
		p.Series = slices.SortedStableFunc(slices.Values(p.Series), func(s, t BoardSeries) int { return cmp.Compare(t.most(), s.most()) })
		b.curves(c, p, left, top, wide, high)
	}
	var names []string
	for _, s := range p.Series {
		names = append(names, s.Name)
	}
	return fmt.Sprintf("%s: up to %s; %s.", p.Title, quantity(p.most(), p.Unit), strings.Join(names, " | "))
}

// axis draws the events of a panel, and returns the place of a value in time.
func (b Board) axis(c *canvas, p BoardPanel, x0, x1, y0, y1 float64) func(i float64) float64 {
	n := 1
	for _, s := range p.Series {
		n = max(n, len(s.numbers()))
	}
	from := float64(b.first())
	x := func(i float64) float64 { return x0 + max(i-from, 0)/(max(float64(n-1)-from, 1))*(x1-x0) }
	label, begin := "", 0.0
	for i, e := range b.Events {
		at := x(e.At / b.Step)
		c.line(at, y1, at, y0, "hollow")
		if label == "" {
			label, begin = strconv.Itoa(i+1), at
		} else {
			label += "," + strconv.Itoa(i+1)
		}
		if i+1 < len(b.Events) && x(b.Events[i+1].At/b.Step)-at < 16 { // two numbers would meet
			continue
		}
		c.text((begin+at)/2, y1-5, "small pale mid", label)
		label = ""
	}
	return x
}

// first returns the index before the first value of any panel: before it, nothing ran.
func (b Board) first() int {
	least := math.MaxInt
	for _, row := range b.Rows {
		for _, p := range row.Panels {
			for _, s := range p.Series {
				if i := slices.IndexFunc(s.numbers(), func(v float64) bool { return !math.IsNaN(v) }); i >= 0 {
					least = min(least, i)
				}
			}
		}
	}
	return max(least-1, 0)
}

// curves draws a curve for each series.
func (b Board) curves(c *canvas, p BoardPanel, left, top, wide, high float64) {
	x0, x1, y0, y1 := left+60, left+wide-8, top+high-26, top+42
	x := b.axis(c, p, x0, x1, y0, y1)
	most := max(p.most(), 1e-6)
	y := func(v float64) float64 { return y0 - max(v, 0)/most*(y0-y1) }
	c.line(x0, y0, x1, y0, "rule")
	c.text(x0-5, y0+4, "small pale end", "0")
	c.text(x0-5, y1+6, "small pale end", quantity(most, p.Unit))
	at := left + 8
	for i, s := range p.Series {
		if i == len(boardColours) || at+room(s.Name) > left+wide-24 {
			c.text(at, top+high-8, "small pale", fmt.Sprintf("+%d", len(p.Series)-i))
			break
		}
		c.text(at, top+high-8, "small "+boardColours[i], s.Name)
		at += room(s.Name)
	}
	for i, s := range p.Series {
		class := boardColours[min(i, len(boardColours)-1)]
		var points [][2]float64
		for n, v := range append(s.numbers(), math.NaN()) {
			if !math.IsNaN(v) {
				points = append(points, [2]float64{x(float64(n)), y(v)})
				continue
			}
			switch len(points) {
			case 0:
			case 1:
				c.dot(points[0][0], points[0][1], 2, class)
			default:
				c.curve(points, class)
			}
			points = nil
		}
	}
}

// room is the space of a name in a legend.
func room(name string) float64 { return wide(name, small)*1.12 + 14 } // capitals are wider

// states draws a bar for each time in which a series is not 0.
func (b Board) states(c *canvas, p BoardPanel, left, top, wide, high float64) {
	x0, x1, y0, y1 := left+100, left+wide-8, top+high-8, top+42
	x := b.axis(c, p, x0, x1, y0, y1)
	slot := (y0 - y1) / float64(max(len(p.Series), 1))
	for i, s := range p.Series {
		y := y1 + float64(i)*slot
		c.text(x0-6, y+slot/2+4, "small pale end", s.Name)
		for n, v := range s.numbers() {
			if v > 0 { // not if v is NaN
				c.rect(x(float64(n)-0.5), y+2, x(float64(n)+0.5)-x(float64(n)-0.5)+0.5, slot-4, "green")
			}
		}
	}
}

// quantity formats a value in a unit of Grafana.
func quantity(v float64, unit string) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case unit == "s":
		return short(v)
	case unit == "percentunit":
		return fmt.Sprintf("%.0f %%", v*100)
	case unit == "ops":
		return count(v, "") + "/s"
	}
	return count(v, "")
}
