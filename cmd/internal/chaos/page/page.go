// Package page writes what happened in a chaos run as one HTML page. The page needs no network: its
// styles, its script and its data are inside. Without JavaScript it lacks only the timeline.
package page

import (
	"bufio"
	_ "embed"
	"fmt"
	"html"
	"io"

	"github.com/fencelock/fencelock/chaostest/history"
)

var (
	//go:embed head.html
	headHTML string
	//go:embed timeline.html
	timelineHTML string
	//go:embed controls.html
	controlsHTML raw
	//go:embed page.css
	style raw
	//go:embed page.js
	script raw
)

// Write writes the page of a history that has been judged. Command repeats the run.
func Write(w io.Writer, h *history.History, command string) error {
	f, s := gather(h), sheet{bufio.NewWriter(w)}
	s.head(f, command)
	s.timeline(f)
	s.violations(f)
	s.faults(f)
	s.add("</main>\n</html>\n")
	return s.w.Flush()
}

// raw is text that is HTML already.
type raw string

// A sheet writes HTML. Its first error stays in w until Flush returns it.
type sheet struct{ w *bufio.Writer }

// add formats like fmt.Fprintf, and escapes every string that is not raw.
func (s sheet) add(format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = html.EscapeString(text)
		}
	}
	fmt.Fprintf(s.w, format, args...)
}

func (s sheet) head(f *facts, command string) {
	v := f.verdict()
	s.add(headHTML, v.title, f.Engine, style, v.class, raw(v.shape), raw(v.sign), v.text)
	if len(f.marks) > 0 {
		first := f.first()
		s.add(`<a class="go %s js-only" href="%s">Show %s</a>`, first.class, f.link(first.At, first.to), first.id)
	}
	s.add("</div>\n<p class=\"run\">%s</p>\n", f.about())
	s.add("<p class=\"run\">Run it again: <code>%s</code></p>\n", command)
	s.add("<dl class=\"answers\">\n")
	for _, a := range f.answers() {
		s.add("<div class=\"%s\"><dt>%s</dt><dd><b>%s</b> <span>%s</span></dd></div>\n", a.class, a.question, a.short, a.long)
	}
	s.add("</dl>\n</header>\n<main>\n")
}

// timeline writes the controls, and the data and the script of the timeline.
func (s sheet) timeline(f *facts) {
	if len(f.Workers) == 0 || f.stop <= f.start {
		return
	}
	s.add(timelineHTML, count(len(f.granted), "acquisition"), count(len(f.Workers), "lane"))
	for i, l := range f.locks[:min(len(f.locks), lockRows)] {
		s.add(`<label class="c%d"><input type="checkbox" value="%d" checked><i></i>%s</label>`, i%colours, i, l)
	}
	s.add("%s", controlsHTML)
	if f.base != 0 {
		s.add("<p class=\"hint js-only\">On the bars tokens are counted from %d.</p>\n", f.base)
	}
	s.add("</section>\n<script type=\"application/json\" id=\"data\">%s</script>\n<script>\n%s</script>\n", raw(f.data()), script)
}
