//go:build unix

package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	"github.com/fencelock/fencelock"
)

// help explains what the line of keys and the heads do not.
const help = `Keys
  Up Down PgUp PgDn Home End  select (also j k g G); at Home the cursor stays on top
  Enter   show the holders and the queue of the selected name
  /       show only what contains a text in its name, hosts or notes;
          after ! only what does not. Esc removes the filter
  s  r    sort by another column; reverse the order
  w       show only names that have waiters
  b       break a lock: take it from its holder, for a reason that you type
  p       pause: the server is not asked until you press p again
  q       quit, as Ctrl-C; Ctrl-Z stops, Ctrl-L draws the screen again

Columns
  WAIT    the longest wait              N    the number of waiters
  HOLDER  PID@HOST; +2 is two more      AGE  since when the oldest holder holds
  LEASE   what is left of the lease; red if a renewal is late`

// styles are how text looks. The colors are of the terminal's own palette, and can be read on a
// light and on a dark background.
type styles struct{ plain, pale, bold, head, alarm tcell.Style }

func (t *top) styles() styles {
	plain := tcell.StyleDefault
	s := styles{plain: plain, pale: plain.Dim(true), bold: plain.Bold(true), head: plain.Underline(true), alarm: plain.Bold(true)}
	if t.screen.Colors() > 0 {
		s.head, s.alarm = s.head.Foreground(color.Teal), s.alarm.Foreground(color.Maroon)
	}
	return s
}

// put draws text in a field of some width, and returns the column after the text.
func (t *top) put(x, y, width int, text string, style tcell.Style, right bool) int {
	all, _ := t.screen.Size()
	if width = min(width, all-x); width <= 0 {
		return x
	}
	text = displaywidth.TruncateString(text, width, "…")
	used := displaywidth.String(text)
	if right {
		x += width - used
	}
	t.screen.PutStrStyled(x, y, text, style)
	return x + used
}

// fill gives a whole line a style.
func (t *top) fill(y int, style tcell.Style) {
	width, _ := t.screen.Size()
	t.screen.FillArea(0, y, width, 1, ' ', style)
}

// draw draws the whole screen. Only what has changed is sent to the terminal.
func (t *top) draw() {
	t.screen.Clear()
	t.screen.HideCursor()
	width, height := t.screen.Size()
	keys, bottom := "Enter details  / filter  s sort  w waited  b break  p pause  ? help  q quit", height-2
	t.drawTitle(width)
	switch {
	case t.help:
		keys = "any key closes the help"
		for i, text := range strings.Split(help, "\n") {
			t.put(1, 3+i, width, text, t.styles().plain, false)
		}
		t.fill(height-1, t.styles().plain)
	case t.pane != "":
		keys = "Up Down select  b break  Esc closes  p pause  ? help  q quit"
		s, all := t.shown(0)
		middle := max(bottom-len(all)-2, bottom*2/5)
		t.drawNames(2, middle-1)
		t.drawPane(s, all, middle, bottom)
	default:
		t.drawNames(2, bottom)
	}
	t.drawStatus(bottom, width)
	if t.prompt != nil {
		keys = "Enter accepts  Esc cancels  Ctrl-U clears"
	}
	t.put(0, height-1, width, keys, t.styles().pale, false)
	t.screen.Show()
}

// drawTitle draws what is listed, when, and the sums of what is shown.
func (t *top) drawTitle(width int) {
	style := t.styles()
	state, look := clock(t.at)+" UTC", style.alarm
	switch {
	case t.at.IsZero():
		state, look = "listing the locks ...", style.pale
	case t.paused:
		state = "PAUSED " + state
	case t.stale():
		state = "STALE " + state
	default:
		state, look = fmt.Sprintf("%s  every %v", state, t.pause.Round(100*time.Millisecond)), style.pale
	}
	x := 2 + t.put(0, 0, width, "fencelock top", style.bold, false)
	t.put(x, 0, width-x-len(state)-1, text(t.cfg.Title), style.plain, false)
	t.put(0, 0, width, state, look, true)
	if t.at.IsZero() {
		return
	}
	held, waiting, late, wait := 0, 0, 0, time.Duration(0)
	for _, r := range t.rows {
		held, waiting, wait = held+len(r.Holders), waiting+len(r.Waiters), max(wait, r.wait)
		if r.next.late() {
			late++
		}
	}
	names := fmt.Sprintf("%d names", len(t.rows))
	if len(t.rows) < len(t.list) {
		names = fmt.Sprintf("%d of %d names", len(t.rows), len(t.list))
	}
	sums := fmt.Sprintf("%s  %d held  %d waiting  longest wait %s", names, held, waiting, cmp.Or(span(wait), "-"))
	x = 2 + t.put(0, 1, width, sums, style.plain, false)
	if late > 0 {
		x = 2 + t.put(x, 1, width, fmt.Sprintf("%d late", late), style.alarm, false)
	}
	if t.lost > 0 {
		t.put(x, 1, width, fmt.Sprintf("%d lost since %s", t.lost, t.began.UTC().Format("15:04")), style.alarm, false)
	}
}

// drawNames draws the names between two lines.
func (t *top) drawNames(from, to int) {
	columns := []column[row]{
		{head: "NAME", least: 20, cell: func(r row) string { return word(r.Name) }},
		{head: "MODE", from: 110, cell: row.mode},
		{head: "WAIT", right: true, cell: func(r row) string { return span(r.wait) }},
		{head: "N", right: true, cell: func(r row) string { return number(len(r.Waiters)) }},
		{head: "HOLDER", least: 10, cell: row.holder},
		{head: "SINCE", from: 110, cell: func(r row) string { return clock(r.oldest.Since) }},
		{head: "AGE", right: true, cell: func(r row) string { return span(r.oldest.age) }},
		{head: "LEASE", cell: func(r row) string { return r.next.lease() }, alarm: func(r row) bool { return r.next.late() }},
		{head: "TOKEN", from: 140, right: true, cell: func(r row) string { return number(r.oldest.Token) }},
		{head: "NOTE", least: 8, cell: row.note, alarm: func(r row) bool { return r.Trouble != nil }},
	}
	for i := range columns {
		if c := &columns[i]; c.head == orders[t.order].head {
			c.head += map[bool]string{false: "▼", true: "▲"}[t.reversed]
		}
	}
	drawTable(t, &t.names, columns, t.rows, from, to, t.pane == "")
	if len(t.rows) == 0 && !t.at.IsZero() {
		empty := "no lock is held or waited for"
		if len(t.list) > 0 {
			empty = "no name is selected by / and w"
		}
		t.put(1, from+2, far, empty, t.styles().pale, false)
	}
}

// drawPane draws the holders and the queue of a name between two lines.
func (t *top) drawPane(s fencelock.Status, all []member, from, to int) {
	facts := fmt.Sprintf("%s, %d holding, %d waiting", row{Status: s}.mode(), len(s.Holders), len(s.Waiters))
	if len(all) == 0 {
		facts = "nobody holds it or waits for it"
	}
	if !s.NotBefore.IsZero() {
		facts += ", minimum hold until " + clock(s.NotBefore) + " UTC"
	}
	x := 2 + t.put(0, from, far, word(s.Name), t.styles().bold, false)
	t.put(x, from, far, facts, t.styles().plain, false)
	drawTable(t, &t.members, []column[member]{
		{head: "", cell: func(m member) string { return cmp.Or(number(m.place), "held") }},
		{head: "PROCESS", least: 10, cell: member.process},
		{head: "SINCE", from: 100, cell: func(m member) string { return clock(m.Since) }},
		{head: "AGE", right: true, cell: func(m member) string { return span(m.age) }},
		{head: "LEASE", cell: member.lease, alarm: member.late},
		{head: "TOKEN", right: true, cell: func(m member) string { return number(m.Token) }},
		{head: "WEIGHT", from: 110, right: true, cell: func(m member) string { return number(m.Weight) }},
		{head: "OWNER", from: 140, cell: func(m member) string { return word(m.Owner) }},
		{head: "NOTE", least: 8, cell: func(m member) string { return text(m.Note) }},
	}, all, from+1, to, true)
}

// drawStatus draws the line above the keys: a question, an error, a message, or the filter.
func (t *top) drawStatus(y, width int) {
	style := t.styles()
	status, look := "", style.alarm
	switch {
	case t.prompt != nil:
		x, shown := t.put(0, y, width*2/3, t.prompt.label, style.bold, false), t.prompt.text
		for shown != "" && displaywidth.String(shown) >= width-x { // the end is where the cursor is
			_, size := utf8.DecodeRuneInString(shown)
			shown = shown[size:]
		}
		x = t.put(x, y, width, shown, style.plain, false)
		t.screen.ShowCursor(x, y)
		x = 2 + x
		t.put(x, y, width, t.message, style.alarm, false)
		return
	case t.stale() && t.err != nil:
		status = fmt.Sprintf("not listed for %s: %s", span(time.Since(t.at)), line(t.err))
	case t.stale():
		status = fmt.Sprintf("no answer for %s", span(time.Since(t.asked)))
	case t.message != "":
		status, look = t.message, style.bold
	case t.err != nil:
		status = line(t.err)
	case t.filter != "":
		status, look = "filter: "+text(t.filter)+"  (Esc removes it)", style.plain
	}
	if l := t.names; l.height > 0 && len(t.rows) > l.height && status == "" {
		t.put(0, y, width, fmt.Sprintf("%d-%d of %d", l.first+1, min(l.first+l.height, len(t.rows)), len(t.rows)), style.pale, true)
	}
	t.put(0, y, width, status, look, false)
}
