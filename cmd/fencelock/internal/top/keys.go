//go:build unix

package top

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gdamore/tcell/v3"
	"golang.org/x/sys/unix"
)

// far is more rows than there are.
const far = 1 << 30

// event handles an event of the terminal.
func (t *top) event(ev tcell.Event) error {
	switch ev := ev.(type) {
	case *tcell.EventResize:
		t.names.widths, t.members.widths = nil, nil
		t.screen.Sync()
	case *tcell.EventPaste:
		t.pasting = ev.Start()
	case *tcell.EventError: // the terminal was closed
		return ev
	case *tcell.EventKey:
		if ev.Modifiers()&tcell.ModAlt != 0 { // Esc, and at once another key
			if err := t.key(tcell.KeyEscape, ""); err != nil {
				return err
			}
		}
		return t.key(ev.Key(), ev.Str())
	}
	return nil
}

// key handles a key. Pasted text is for questions only: as keys, it could break a lock.
func (t *top) key(key tcell.Key, letter string) error {
	switch {
	case t.pasting && (t.prompt == nil || key != tcell.KeyRune):
		return nil
	case key == tcell.KeyCtrlC:
		return errQuit
	case key == tcell.KeyCtrlZ:
		return t.stopped(unix.SIGTSTP)
	case key == tcell.KeyCtrlL:
		t.screen.Sync()
		return nil
	}
	if key != tcell.KeyRune {
		letter = ""
	}
	t.message = ""
	switch {
	case t.prompt != nil:
		t.prompt.key(t, key, letter)
	case t.help:
		t.help = false
	case letter == "q" && t.breaking:
		t.message = "a break has no result yet; Ctrl-C quits now"
	case letter == "q":
		return errQuit
	default:
		t.move(key, letter)
		t.command(key, letter)
	}
	return nil
}

// move moves the cursor of the pane, or that of the names if the pane is closed. At the first name,
// the cursor stays at the top, whatever the name is.
func (t *top) move(key tcell.Key, letter string) {
	page := t.names.height
	if t.pane != "" {
		page = t.members.height
	}
	by := map[tcell.Key]int{
		tcell.KeyUp: -1, tcell.KeyDown: 1, tcell.KeyPgUp: -page, tcell.KeyPgDn: page, tcell.KeyHome: -far, tcell.KeyEnd: far,
	}[key] + map[string]int{"k": -1, "j": 1, "g": -far, "G": far}[letter]
	switch {
	case by == 0:
	case t.pane != "":
		t.shown(by)
	default:
		t.names.move(by, len(t.rows))
		if t.name = ""; t.names.cursor > 0 {
			t.name = t.selected()
		}
	}
}

// selected returns the name of the row of the cursor, "" without rows.
func (t *top) selected() string {
	if t.names.cursor < len(t.rows) {
		return t.rows[t.names.cursor].Name
	}
	return ""
}

// command does what a key says.
func (t *top) command(key tcell.Key, letter string) {
	switch {
	case t.pane != "" && (key == tcell.KeyEnter || key == tcell.KeyEscape):
		t.pane = ""
	case key == tcell.KeyEnter:
		t.open(t.selected())
	case key == tcell.KeyEscape:
		t.filter = ""
	case letter == "?":
		t.help = true
	case letter == "/":
		before := t.filter
		t.prompt = &prompt{label: "filter: ", text: before, typed: t.filterBy, cancelled: func() { t.filterBy(before) }}
	case letter == "s":
		t.order, t.reversed = (t.order+1)%len(orders), false
	case letter == "r":
		t.reversed = !t.reversed
	case letter == "w":
		t.waited = !t.waited
	case letter == "p":
		t.paused, t.gap = !t.paused, true
	case letter == "b":
		t.askReason()
	}
	t.arrange()
}

// filterBy shows only what matches a text.
func (t *top) filterBy(text string) {
	t.filter = text
	t.arrange()
}

// open opens the pane of a name.
func (t *top) open(name string) { t.pane, t.owner, t.members = name, "", table{} }

// askReason asks for the reason to break the selected lock. Of several holders, one must be
// selected in the pane. The answer is for this acquisition, whatever the screen shows by then.
func (t *top) askReason() {
	s, at := t.status(t.selected()), 0
	if t.pane != "" {
		s, _ = t.shown(0)
		at = t.members.cursor
	}
	switch all := membersOf(s, t.at); {
	case t.breaking:
		t.message = "the last break has no result yet"
	case t.pane == "" && len(s.Holders) > 1:
		t.open(s.Name)
		t.message = "this lock has several holders: select one, and press b"
	case at >= len(s.Holders):
		t.message = "no holder is selected"
	case all[at].Owner == "":
		t.message = "the engine does not report who this holder is; use fencelock break"
	default:
		m := all[at]
		t.prompt = &prompt{
			label:   fmt.Sprintf("reason to break %s, held by %s: ", word(s.Name), m.process()),
			entered: func(reason string) { t.breakLock(s.Name, m.Owner, m.process(), reason) },
		}
	}
}

// longest is how many bytes an answer may have.
const longest = 500

// prompt is a question on the line above the keys.
type prompt struct {
	label, text string
	typed       func(text string) // called after each change; may be nil
	cancelled   func()            // may be nil
	entered     func(text string) // needs a text; may be nil
}

// key handles a key while there is a question.
func (p *prompt) key(t *top, key tcell.Key, letter string) {
	given := strings.TrimSpace(p.text)
	switch {
	case key == tcell.KeyEnter && p.entered != nil && given == "":
		t.message = "the reason is empty"
		return
	case key == tcell.KeyEnter || key == tcell.KeyEscape:
		t.prompt = nil
		if key == tcell.KeyEscape && p.cancelled != nil {
			p.cancelled()
		} else if key == tcell.KeyEnter && p.entered != nil {
			p.entered(given)
		}
		return
	case key == tcell.KeyBackspace:
		_, size := utf8.DecodeLastRuneInString(p.text)
		p.text = p.text[:len(p.text)-size]
	case key == tcell.KeyCtrlU:
		p.text = ""
	case len(p.text)+len(letter) <= longest:
		p.text += printable(letter)
	}
	if p.typed != nil {
		p.typed(p.text)
	}
}
