package picture

import (
	"fmt"
	"math"
	"strconv"
)

// Timeline is what happened in one or more runs, each in a panel. Times are seconds.
type Timeline struct {
	Title       string
	Description string // for people who do not see the picture
	Measured    string // on what and when
	From, To    float64
	Panels      []Panel
}

// Panel is one run.
type Panel struct {
	Title   string
	Outcome string // what it shows
	Lanes   []Lane
	Faults  []Mark // across all lanes
}

// Lane is a process or a resource in a run.
type Lane struct {
	Name  string
	Spans []Span
	Marks []Mark
}

// Span is a state that lasts.
type Span struct {
	From, To float64
	Kind     string // holds, lease, waits, frozen, stale or closed
	Text     string
	Note     string // below
}

// Mark is something that happens at once.
type Mark struct {
	At   float64
	Kind string // accepted or refused; empty for a fault
	Text string
}

// spanClass is how a span is drawn, and textClass how its text is.
var (
	spanClass = map[string]string{"holds": "green", "lease": "frame", "waits": "hollow", "frozen": "hatched", "stale": "red", "closed": "hatched"}
	textClass = map[string]string{"holds": "on", "stale": "on"}
)

// The geometry of a timeline.
const (
	laneLeft  = 112 // where time begins
	laneRight = width - 20
	laneStep  = 50
	barHeight = 24
)

// draw draws the panels below each other, on one scale of time.
func (t Timeline) draw() []byte {
	c := new(canvas)
	y := c.heading(t.Title, t.Measured)
	for _, p := range t.Panels {
		y = t.panel(c, p, y)
	}
	for s := math.Ceil(t.From); s <= t.To; s++ {
		if int(s)%2 == 0 || t.To-t.From < 9 {
			c.line(t.x(s), y-2, t.x(s), y+3, "rule")
			c.text(t.x(s), y+18, "small pale mid", strconv.Itoa(int(s))+" s")
		}
	}
	return c.svg(y+30, t.Title, t.Description)
}

// x is where a time is.
func (t Timeline) x(at float64) float64 {
	return laneLeft + (min(max(at, t.From), t.To)-t.From)/(t.To-t.From)*(laneRight-laneLeft)
}

// panel draws one run and returns where the next begins.
func (t Timeline) panel(c *canvas, p Panel, y float64) float64 {
	if p.Title != "" {
		c.text(16, y+14, "bold", p.Title)
		y += 24
	}
	step := float64(laneStep)
	if !p.noted() {
		step = barHeight + 8
	}
	bottom := y + step*float64(len(p.Lanes))
	if len(p.Faults) > 0 {
		bottom += 18
		y += 18
	}
	for i, lane := range p.Lanes {
		t.spans(c, lane, y+float64(i)*step)
	}
	for _, f := range p.Faults {
		x := t.x(f.At)
		for i := range p.Lanes { // not across the notes below the bars
			c.line(x, y+float64(i)*step-5, x, y+float64(i)*step+barHeight+3, "fault")
		}
		t.label(c, x, y-9, "red", f.Text)
	}
	for i, lane := range p.Lanes {
		t.texts(c, lane, y+float64(i)*step, p.Faults)
	}
	y = bottom
	for _, line := range wrap(p.Outcome, 90) {
		c.text(16, y+12, "small", line)
		y += 18
	}
	c.line(16, y+6, width-16, y+6, "rule")
	return y + 14
}

// noted reports whether text stands below a lane.
func (p Panel) noted() bool {
	for _, l := range p.Lanes {
		if len(l.Marks) > 0 {
			return true
		}
		for _, s := range l.Spans {
			if s.Note != "" {
				return true
			}
		}
	}
	return false
}

// spans draws the spans of a lane with its top at y.
func (t Timeline) spans(c *canvas, l Lane, y float64) {
	c.line(laneLeft, y+barHeight/2, laneRight, y+barHeight/2, "rule")
	for _, s := range l.Spans {
		left, right := t.x(s.From), t.x(s.To)
		c.rect(left, y, right-left, barHeight, "clear") // hides the line
		c.rect(left, y, right-left, barHeight, spanClass[s.Kind])
	}
}

// texts writes what is in a lane, and draws its marks.
func (t Timeline) texts(c *canvas, l Lane, y float64, faults []Mark) {
	c.text(16, y+17, "", l.Name)
	for _, s := range l.Spans {
		left, right := t.x(s.From), t.x(s.To)
		room := wide(s.Text, small)
		if middle, ok := t.clear(left, right, room, faults); ok {
			if spanClass[s.Kind] == "hatched" {
				c.rect(middle-room/2-4, y+4, room+8, barHeight-8, "clear")
			}
			c.text(middle, y+17, "small mid "+textClass[s.Kind], s.Text)
		}
		if s.Note != "" {
			c.text(left, y+barHeight+15, "small pale", s.Note)
		}
	}
	for _, m := range l.Marks {
		class, sign := "green", "✓"
		if m.Kind == "refused" {
			class, sign = "red", "✗"
		}
		text := m.Text
		if len([]rune(text)) == 1 { // it fits into the dot, where no neighbour meets it
			sign, text = text, ""
		}
		x := t.x(m.At)
		c.dot(x, y+barHeight/2, 10, class)
		c.text(x, y+barHeight/2+5, "on bold mid", sign)
		if text != "" {
			t.label(c, x, y+barHeight+15, class, text)
		}
	}
}

// clear returns where a text can stand in the middle of the widest part of a bar that no fault
// crosses.
func (t Timeline) clear(left, right, width float64, faults []Mark) (middle float64, ok bool) {
	cuts := []float64{left}
	for _, f := range faults {
		if x := t.x(f.At); x > left && x < right {
			cuts = append(cuts, x)
		}
	}
	cuts = append(cuts, right)
	most := 0.0
	for i := range len(cuts) - 1 {
		if room := cuts[i+1] - cuts[i]; room > most {
			most, middle = room, (cuts[i]+cuts[i+1])/2
		}
	}
	return middle, most > width+4
}

// label writes a text below or above a point, inside the picture.
func (t Timeline) label(c *canvas, x, y float64, class, text string) {
	if x+wide(text, small)/2 > laneRight {
		c.text(laneRight, y, "small end "+class, text)
		return
	}
	c.text(x, y, "small mid "+class, text)
}

// Seconds formats a duration of a run for a text in a picture.
func Seconds(s float64) string { return fmt.Sprintf("%.1f s", s) }
