package picture

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Handover is how long single hand-overs took, in seconds, by contestant.
type Handover struct {
	Measured string
	Order    []string // of the contestants
	Notes    map[string]string
	Took     map[string][]float64
}

// draw draws a dot for each hand-over, on a logarithmic scale.
func (h Handover) draw() []byte {
	const title = "Hand-over to a waiting process: pushed or polled"
	const left, right, step, most, least = 180.0, width - 24.0, 62.0, 1.0, 1e-4
	x := func(s float64) float64 {
		return left + math.Log10(min(max(s, least), most)/least)/math.Log10(most/least)*(right-left)
	}
	c := new(canvas)
	y := c.heading(title, h.Measured)
	bottom := y + step*float64(len(h.Order))
	for s := least; s < most*1.5; s *= 10 {
		c.line(x(s), y, x(s), bottom, "rule")
		align := " mid"
		if s > most/2 {
			align = " end"
		}
		c.text(x(s), bottom+18, "small pale"+align, short(s))
	}
	said := []string{"Each dot is one hand-over, from the release until the waiting process has the lock. Medians:"}
	for _, name := range h.Order {
		values := slices.Sorted(slices.Values(h.Took[name]))
		median := values[(len(values)-1)/2]
		class := "grey"
		if name == "fencelock" {
			class = "blue"
		}
		c.text(16, y+24, "bold", name)
		c.text(16, y+41, "small pale", h.Notes[name])
		for i, v := range values {
			c.dot(x(v), y+16+float64(i*7%5)*5, 3, class+" dot")
		}
		c.line(x(median), y+6, x(median), y+46, "fault")
		align, at := "", x(median)+5
		if at+80 > right {
			align, at = " end", x(median)-5
		}
		c.text(at, y+58, "small red"+align, "median "+short(median))
		said = append(said, fmt.Sprintf("%s %s;", name, short(median)))
		y += step
	}
	return c.svg(bottom+28, title, strings.Join(said, " "))
}

// Turns is how often each of the contenders for one lock got it, by contestant.
type Turns struct {
	Measured string
	Order    []string
	Turns    map[string][]int
}

// draw draws a bar for each contender. A bar that is too high is cut, and its height is written.
func (t Turns) draw() []byte {
	const title = "Fairness: turns of 64 contenders for one lock"
	const left, right, step, high, most = 160.0, width - 60.0, 92.0, 60.0, 3.0
	c := new(canvas)
	y := c.heading(title, t.Measured)
	said := []string{"Each bar is one of the contenders, sorted by turns, relative to the mean."}
	for _, name := range t.Order {
		turns := slices.Sorted(slices.Values(t.Turns[name]))
		sum, none := 0, 0
		for _, n := range turns {
			sum += n
			if n == 0 {
				none++
			}
		}
		mean := float64(max(sum, 1)) / float64(len(turns))
		class := "grey"
		if name == "fencelock" {
			class = "blue"
		}
		base := y + high + 16
		c.text(16, y+30, "bold", name)
		text := fmt.Sprintf("%d without a turn", none)
		if none == 0 {
			text = fmt.Sprintf("fewest: %.2f × mean", float64(turns[0])/mean)
		}
		c.text(16, y+48, "small pale", text)
		c.text(16, y+65, "small pale", fmt.Sprintf("most: %.2f × mean", float64(turns[len(turns)-1])/mean))
		slot := (right - left) / float64(len(turns))
		for i, n := range turns {
			of := float64(n) / mean
			h := min(of, most) / most * high
			c.rect(left+float64(i)*slot, base-h, slot-1.5, h, class)
		}
		if of := float64(turns[len(turns)-1]) / mean; of > most {
			c.text(right, base-high-4, "small pale end", fmt.Sprintf("%.1f × mean", of))
		}
		c.line(left, base-high/most, right, base-high/most, "fault")
		c.text(right+5, base-high/most+4, "small red", "mean")
		c.line(left, base, right, base, "rule")
		said = append(said, fmt.Sprintf("%s: fewest %.2f, most %.2f times the mean, %d without a turn.", name, float64(turns[0])/mean, float64(turns[len(turns)-1])/mean, none))
		y += step
	}
	return c.svg(y+8, title, strings.Join(said, " "))
}

// Cost is what many locks and waiters cost: curves over their number.
type Cost struct {
	Measured string
	Panels   []CostPanel
}

// CostPanel is one cost.
type CostPanel struct {
	Title  string
	Of     string // what is counted on the horizontal axis
	Unit   string // of the values: "" or "B"
	Curves []Curve
}

// Curve is the cost of one contestant.
type Curve struct {
	Name   string
	Points [][2]float64 // number and cost
}

// curveClass is the colour of a contestant.
var curveClass = map[string]string{"fencelock": "blue", "on go-redis": "green", "rueidislock": "amber", "redislock": "grey", "redsync": "red"}

// draw draws two panels in a row, with logarithmic scales.
func (c Cost) draw() []byte {
	const title = "What many locks and waiters cost"
	const wide, high = width/2 - 16.0, 250.0
	out := new(canvas)
	y := out.heading(title, c.Measured)
	var said []string
	for i, p := range c.Panels {
		said = append(said, p.draw(out, 12+float64(i%2)*(wide+8), y+float64(i/2)*high, wide, high))
	}
	return out.svg(y+float64((len(c.Panels)+1)/2)*high, title, strings.Join(said, " "))
}

// draw draws a panel at a place and returns what it shows.
func (p CostPanel) draw(c *canvas, left, top, wide, high float64) string {
	minX, maxX, minY, maxY := math.Inf(1), 0.0, math.Inf(1), 0.0
	for _, curve := range p.Curves {
		for _, q := range curve.Points {
			minX, maxX, minY, maxY = min(minX, q[0]), max(maxX, q[0]), min(minY, q[1]), max(maxY, q[1])
		}
	}
	least := max(minY, 0.1) // a cost that rounds to nothing stands at the bottom
	low, up := math.Floor(math.Log10(least)), math.Ceil(math.Log10(max(maxY, 10*least)))
	x0, x1, y0, y1 := left+50, left+wide-88, top+high-44, top+34
	x := func(v float64) float64 {
		return x0 + (math.Log10(v)-math.Log10(minX))/(math.Log10(maxX)-math.Log10(minX))*(x1-x0)
	}
	y := func(v float64) float64 { return y0 - (math.Log10(max(v, math.Pow(10, low)))-low)/(up-low)*(y0-y1) }
	c.text(left+4, top+14, "bold small", p.Title)
	for e := low; e <= up; e++ {
		c.line(x0, y(math.Pow(10, e)), x1, y(math.Pow(10, e)), "rule")
		c.text(x0-6, y(math.Pow(10, e))+4, "small pale end", count(math.Pow(10, e), p.Unit))
	}
	for e := math.Ceil(math.Log10(minX)); e <= math.Log10(maxX)+1e-9; e++ {
		c.text(x(math.Pow(10, e)), y0+17, "small pale mid", count(math.Pow(10, e), ""))
	}
	c.text((x0+x1)/2, y0+33, "small pale mid", p.Of)
	said := p.Title + ":"
	ends := map[string]float64{}
	for _, curve := range p.Curves {
		var points [][2]float64
		for _, q := range curve.Points {
			points = append(points, [2]float64{x(q[0]), y(q[1])})
			c.dot(x(q[0]), y(q[1]), 3, curveClass[curve.Name])
		}
		c.curve(points, curveClass[curve.Name])
		ends[curve.Name] = points[len(points)-1][1] + 4
		end := curve.Points[len(curve.Points)-1]
		said += fmt.Sprintf(" %s %s at %s;", curve.Name, count(end[1], p.Unit), count(end[0], ""))
	}
	names := slices.SortedFunc(maps.Keys(ends), func(a, b string) int { return cmp.Or(cmp.Compare(ends[b], ends[a]), strings.Compare(b, a)) })
	next := y0 + 4
	for _, name := range names { // from the bottom up, so that names do not cover each other
		next = min(next, ends[name])
		c.text(x1+8, next, "small "+curveClass[name], name)
		next -= 15
	}
	return said
}

// count formats a number with three digits at most, such as 12.3k or 45 MB.
func count(v float64, unit string) string {
	letters := []string{"", "k", "M", "G"}
	i := 0
	for ; v >= 999.5 && i < len(letters)-1; i++ {
		v /= 1000
	}
	s := fmt.Sprintf("%.3g", v) + letters[i]
	if unit != "" {
		s = fmt.Sprintf("%.3g %s%s", v, letters[i], unit)
	}
	return s
}
