// Package page writes what happened in a chaos run as one HTML page. The page needs no network: its
// styles, its script and its data are inside. Without JavaScript it shows everything except the
// timeline that can be zoomed.
package page

import (
	"bufio"
	_ "embed"
	"fmt"
	"html"
	"io"

	"github.com/fencelock/fencelock/chaostest/history"
)

//go:embed page.css
var style string

//go:embed page.js
var script string

// Write writes the page of a history that has been judged. Command repeats the run; if it is empty,
// the page names none.
func Write(w io.Writer, h *history.History, command string) error {
	buffered := bufio.NewWriter(w)
	f := gather(h)
	s := sheet{buffered}
	s.head(f, command)
	s.timeline(f)
	s.violations(f)
	s.losses(f)
	s.faults(f)
	s.turns(f)
	s.add("</main>\n</html>\n")
	return buffered.Flush()
}

// raw is text that is HTML already.
type raw string

// A sheet writes HTML. Its errors wait in w until it is flushed.
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
	s.add(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>%s: fencelock chaos on %s</title>
<style>
%s</style>
<script>document.documentElement.className = "js"</script>
<header class="%s">
<div class="verdict"><svg viewBox="0 0 32 32" aria-hidden="true"><path class="shape" d="%s"/><path d="%s"/></svg>
<div><h1>%s</h1><p>%s</p></div>`, v.title, f.Engine, raw(style), v.class, raw(v.shape), raw(v.sign), v.title, v.text)
	if len(f.marks) > 0 {
		s.add(`<a class="go js-only" href="%s">Show %s</a>`, f.link(f.marks[0].At, f.marks[0].to), f.marks[0].id)
	}
	s.add("</div>\n<p class=\"run\">%s</p>\n", f.about())
	if command != "" {
		s.add("<p class=\"run\">Run it again: <code>%s</code></p>\n", command)
	}
	s.add("<dl class=\"answers\">\n")
	for _, a := range f.answers() {
		s.add("<div class=\"%s\"><dt>%s</dt><dd><b>%s</b> <span>%s</span></dd></div>\n", a.class, a.question, a.short, a.long)
	}
	s.add("</dl>\n</header>\n<main>\n")
}

// timeline writes the overview, the controls and the data of the script, unless nothing happened.
func (s sheet) timeline(f *facts) {
	if len(f.workers) == 0 || f.Length <= 0 {
		return
	}
	s.add(`<section class="timeline" aria-labelledby="timeline">
<h2 id="timeline">Timeline <small>%s in %d lanes</small></h2>
`, count(len(f.granted), "acquisition"), len(f.workers))
	s.overview(f)
	s.add(`<div class="tools"><div class="legend">`)
	for i, l := range f.locks[:min(len(f.locks), lockRows)] {
		s.add(`<label class="c%d js-only"><input type="checkbox" value="%d" checked><i></i>%s</label><span class="c%d no-js"><i></i>%s</span>`,
			i%colours, i, l.name, i%colours, l.name)
	}
	s.add(`<span class="k-wait"><i></i>waits</span><span class="k-lost"><i></i>after a loss</span><span class="k-fault"><i></i>fault</span><span class="k-gap"><i></i>nobody holds, others wait</span></div>
<div class="controls js-only" role="group" aria-label="View"><input id="find" type="search" placeholder="token or time" aria-label="Go to a token, or to a time such as 12.5 s" autocomplete="off">
<button data-key="p" aria-label="Previous violation or loss" title="previous violation or loss (p)">&#8249;</button><button data-key="n" aria-label="Next violation or loss" title="next violation or loss (n)">&#8250;</button><button data-key="-" aria-label="Zoom out" title="zoom out (-)">&#8722;</button><button data-key="+" aria-label="Zoom in" title="zoom in (+)">+</button><button data-key="0" title="the whole run (0)">All</button></div></div>
<p class="view js-only" id="view" role="status"></p>
<div class="stage js-only" id="stage"><canvas id="lanes" tabindex="0" role="application" aria-roledescription="timeline" aria-label="One lane for each worker. The arrow keys move, plus and minus zoom, n and p go to the next and the previous violation or loss, comma and period to the previous and the next hold of a lane." aria-describedby="view"></canvas><div id="tip" aria-hidden="true" hidden></div></div>
<p class="hint js-only"><kbd>drag</kbd> moves · <kbd>shift</kbd>+<kbd>drag</kbd> or a drag over the times zooms to a period · <kbd>ctrl</kbd>+<kbd>wheel</kbd>, a pinch or <kbd>+</kbd> <kbd>-</kbd> zooms, the wheel alone after a click · <kbd>&#8592;</kbd> <kbd>&#8594;</kbd> move · <kbd>n</kbd> <kbd>p</kbd> violations and losses · <kbd>&#8593;</kbd> <kbd>&#8595;</kbd> worker · <kbd>,</kbd> <kbd>.</kbd> its holds · <kbd>0</kbd> all</p>
`)
	if f.base != 0 {
		s.add("<p class=\"hint\">On the bars tokens are counted from %d.</p>\n", f.base)
	}
	s.add("</section>\n<script type=\"application/json\" id=\"data\">%s</script>\n<script>\n%s</script>\n", raw(f.data()), raw(script))
}
