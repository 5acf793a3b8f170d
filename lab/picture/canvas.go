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

// style has the colours of both schemes, written out: librsvg and CairoSVG know no variables of CSS, and
// would draw everything black. A renderer without media queries shows the light scheme. A picture has a
// background of its own, so that it can be read on a page of the other scheme.
var style = fonts + colours(light) + "@media (prefers-color-scheme: dark) {" + colours(dark) + "}\n"

// A scheme has the values of the words in rules.
type scheme map[string]string

var (
	light = scheme{"BACK": "#ffffff", "INK": "#1f2328", "PALE": "#59636e", "LINE": "#d1d9e0", "BLUE": "#0969da", "GREEN": "#1a7f37", "RED": "#cf222e", "AMBER": "#9a6700", "GREY": "#8c959f"}
	dark  = scheme{"BACK": "#0d1117", "INK": "#e6edf3", "PALE": "#9198a1", "LINE": "#3d444d", "BLUE": "#4493f8", "GREEN": "#3fb950", "RED": "#f85149", "AMBER": "#d29922", "GREY": "#656c76"}
)

const fonts = `
text { font: 15px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
.small { font-size: 13px } .bold { font-weight: 600 } .mid { text-anchor: middle } .end { text-anchor: end }
.mono { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
.faint { opacity: .4 } .dot { opacity: .55 } .curve { fill: none; stroke-width: 2 } .frame { stroke-width: 1.5 }
.hollow { stroke-dasharray: 4 3 } .hatch path { stroke-width: 3 } .hatched { fill: url(#hatch) } .fault { stroke-width: 1.5; stroke-dasharray: 5 3 }
`

const rules = `
text { fill: INK } .pale { fill: PALE } .on { fill: BACK }
.back { fill: BACK; stroke: LINE } .clear { fill: BACK } .rule { stroke: LINE } .faint { fill: LINE } .hollow { fill: none; stroke: GREY }
.frame { fill: none; stroke: BLUE } .hatch path { stroke: GREY } .hatched { stroke: GREY } .fault { stroke: RED }
`

// colours returns the rules of a scheme.
func colours(s scheme) string {
	var out strings.Builder
	out.WriteString(rules)
	for _, name := range []string{"blue", "green", "red", "amber", "grey"} {
		word := strings.ToUpper(name)
		fmt.Fprintf(&out, ".%s { fill: %s } .curve.%s { fill: none; stroke: %s }\n", name, word, name, word)
	}
	text := out.String()
	for word, value := range s {
		text = strings.ReplaceAll(text, word, value)
	}
	return text
}

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
