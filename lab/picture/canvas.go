package picture

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

const (
	width = 640 // of every picture, in pixels; a phone shows it at half of that
	small = 13  // the size of the smallest text
)

// style has the colours of both schemes. A picture has a background of its own, so that it can be
// read on a page of the other scheme.
const style = `
svg { --back: #ffffff; --ink: #1f2328; --pale: #59636e; --line: #d1d9e0; --blue: #0969da; --green: #1a7f37; --red: #cf222e; --amber: #9a6700; --grey: #8c959f; --on: #ffffff }
@media (prefers-color-scheme: dark) { svg { --back: #0d1117; --ink: #e6edf3; --pale: #9198a1; --line: #3d444d; --blue: #4493f8; --green: #3fb950; --red: #f85149; --amber: #d29922; --grey: #656c76; --on: #0d1117 } }
text { font: 15px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink); paint-order: stroke; stroke: var(--back); stroke-width: 3px; stroke-linejoin: round }
.small { font-size: 13px } .bold { font-weight: 600 } .pale { fill: var(--pale) } .mid { text-anchor: middle } .end { text-anchor: end }
.mono { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
.on { fill: var(--on); stroke: none } .blue { fill: var(--blue) } .green { fill: var(--green) } .red { fill: var(--red) } .amber { fill: var(--amber) } .grey { fill: var(--grey) }
.back { fill: var(--back); stroke: var(--line) } .clear { fill: var(--back) } .rule { stroke: var(--line) } .faint { fill: var(--line); opacity: .4 }
.hollow { fill: none; stroke: var(--grey); stroke-dasharray: 4 3 } .frame { fill: none; stroke: var(--blue); stroke-width: 1.5 }
.hatch path { stroke: var(--grey); stroke-width: 3 } .hatched { fill: url(#hatch); stroke: var(--grey) }
.fault { stroke: var(--red); stroke-width: 1.5; stroke-dasharray: 5 3 } .curve { fill: none; stroke-width: 2 }
.curve.blue { stroke: var(--blue); fill: none } .curve.grey { stroke: var(--grey); fill: none } .curve.amber { stroke: var(--amber); fill: none } .curve.green { stroke: var(--green); fill: none } .curve.red { stroke: var(--red); fill: none }
.dot { opacity: .55 }
`

// canvas collects the elements of an SVG.
type canvas struct{ strings.Builder }

// number formats a coordinate with at most one decimal, so that a picture is the same on every
// machine.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// text writes s with its base line at y.
func (c *canvas) text(x, y float64, class, s string) {
	fmt.Fprintf(c, "<text x=%q y=%q class=%q>%s</text>\n", number(x), number(y), class, html.EscapeString(s))
}

// rect draws a rectangle with round corners.
func (c *canvas) rect(x, y, w, h float64, class string) {
	fmt.Fprintf(c, "<rect x=%q y=%q width=%q height=%q rx=\"2\" class=%q/>\n", number(x), number(y), number(max(w, 0)), number(h), class)
}

// line draws a line.
func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(c, "<line x1=%q y1=%q x2=%q y2=%q class=%q/>\n", number(x1), number(y1), number(x2), number(y2), class)
}

// dot draws a small circle.
func (c *canvas) dot(x, y, r float64, class string) {
	fmt.Fprintf(c, "<circle cx=%q cy=%q r=%q class=%q/>\n", number(x), number(y), number(r), class)
}

// curve draws a line through points.
func (c *canvas) curve(points [][2]float64, class string) {
	var d []string
	for _, p := range points {
		d = append(d, number(p[0])+","+number(p[1]))
	}
	fmt.Fprintf(c, "<polyline points=%q class=%q/>\n", strings.Join(d, " "), "curve "+class)
}

// svg returns the picture, with a title and a description for people who do not see it.
func (c *canvas) svg(height float64, title, description string) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %s\" width=\"%d\" height=%q role=\"img\" aria-labelledby=\"title description\">\n",
		width, number(height), width, number(height))
	fmt.Fprintf(&out, "<title id=\"title\">%s</title>\n<desc id=\"description\">%s</desc>\n", html.EscapeString(title), html.EscapeString(description))
	fmt.Fprintf(&out, "<style>%s</style>\n", style)
	out.WriteString("<defs><pattern id=\"hatch\" class=\"hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path d=\"M0 0V7\"/></pattern></defs>\n")
	fmt.Fprintf(&out, "<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=%q rx=\"6\" class=\"back\"/>\n", width-1, number(height-1))
	return []byte(out.String() + c.String() + "</svg>\n")
}

// heading writes the title of a picture and what it was measured on, and returns where the rest
// begins.
func (c *canvas) heading(title, measured string) (y float64) {
	c.text(16, 28, "bold", title)
	c.text(16, 47, "small pale", measured)
	return 66
}

// wide estimates the width of a text of a size, in pixels.
func wide(s string, size float64) float64 { return float64(len([]rune(s))) * size * 0.54 }

// wrap breaks text into lines of at most columns characters.
func wrap(text string, columns int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > columns:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
