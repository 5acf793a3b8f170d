//go:build unix

package top_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/top"
)

// shown is a running screen on a terminal emulator.
type shown struct {
	t        *testing.T
	emulator *recorder
	ended    chan error

	mu      sync.Mutex // guards what follows
	list    []fencelock.Status
	err     error
	crash   bool
	takes   time.Duration // of a listing
	asked   int
	at, max int // listings that run, and the most at once
}

// recorder is a terminal emulator that keeps what was written to it.
type recorder struct {
	vt.MockTerm
	mu  sync.Mutex // guards raw
	raw strings.Builder
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.raw.Write(p)
	r.mu.Unlock()
	return r.MockTerm.Write(p)
}

func show(t *testing.T, width, height int, list []fencelock.Status) *shown {
	s := &shown{
		t: t, list: list, ended: make(chan error, 1),
		emulator: &recorder{MockTerm: vt.NewMockTerm(vt.MockOptSize{X: vt.Col(width), Y: vt.Row(height)})},
	}
	screen, err := tcell.NewTerminfoScreenFromTty(s.emulator, tcell.OptNegotiation(false), tcell.OptTerm("xterm-256color"))
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				s.ended <- fmt.Errorf("panic: %v", p)
			}
		}()
		_, err := top.Run(ctx, screen, top.Config{Title: "test", Every: 20 * time.Millisecond, List: s.listing})
		s.ended <- err
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func (s *shown) listing(context.Context) ([]fencelock.Status, error) {
	s.mu.Lock()
	s.asked++
	s.at++
	s.max = max(s.max, s.at)
	takes := s.takes
	s.mu.Unlock()
	time.Sleep(takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at--
	if s.crash {
		panic("a broken engine")
	}
	return s.list, s.err
}

// set changes what the engine does.
func (s *shown) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// lines returns what the terminal shows, with a byte for each column. What is not ASCII is "*", or
// "[]" if it is wide.
func (s *shown) lines() (all []string) {
	size, err := s.emulator.WindowSize()
	if err != nil {
		s.t.Fatal(err)
	}
	for y := range size.Height {
		line := ""
		for x := 0; x < size.Width; x++ {
			cell := s.emulator.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)})
			switch {
			case cell.C == "":
				line += " "
			case cell.W == 2:
				line += "[]"
				x++
			case len(cell.C) > 1:
				line += "*"
			default:
				line += cell.C
			}
		}
		all = append(all, line)
	}
	return all
}

// until waits until the screen is as wanted.
func (s *shown) until(what string, ok func(lines []string) bool) []string {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		lines := s.lines()
		if ok(lines) {
			return lines
		}
		if time.Now().After(end) {
			s.t.Fatalf("the screen does not show %s:\n%s", what, strings.Join(lines, "\n"))
		}
	}
}

func contains(text string) func([]string) bool {
	return func(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), text) }
}

// names returns the status of names. Each is held and waited for.
func names(all ...string) (list []fencelock.Status) {
	since := time.Now().Add(-time.Hour)
	for i, name := range all {
		h := fencelock.Holder{Owner: "h" + name, Token: 1700000000000000, Since: since, TTL: 20 * time.Second, Lease: 30 * time.Second}
		h.Host, h.PID, h.Note = "host-"+name, 4242, "note "+name
		w := fencelock.Waiter{Owner: "w" + name, Since: since.Add(time.Duration(i) * time.Second), Position: 1}
		w.Host, w.Note = name, name
		list = append(list, fencelock.Status{Name: name, Mode: fencelock.Exclusive, Holders: []fencelock.Holder{h}, Waiters: []fencelock.Waiter{w}})
	}
	return list
}

func TestFillsEverySize(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("name:%03d", i))
	}
	for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 60}, {30, 6}} {
		s := show(t, size[0], size[1], names(many...))
		last := fmt.Sprintf("name:%03d", size[1]-6) // below two lines and a head, above two lines
		lines := s.until(last, contains(last))
		if !strings.Contains(lines[size[1]-3], last) || strings.Contains(strings.Join(lines, "\n"), fmt.Sprintf("name:%03d", size[1]-5)) {
			t.Errorf("%v: the last row is not %s:\n%s", size, last, strings.Join(lines, "\n"))
		}
		s.emulator.SendRaw([]byte("\r")) // the pane
		s.until("the pane", contains("exclusive, 1 h"))
	}
	for _, size := range [][2]int{{1, 1}, {2, 2}, {7, 3}, {500, 4}} {
		s := show(t, size[0], size[1], names(many...))
		s.until("anything", func(lines []string) bool { return strings.Trim(strings.Join(lines, ""), " ") != "" })
		for _, key := range []string{"\r", "?", "?", "/x", "\r"} {
			s.emulator.SendRaw([]byte(key))
		}
		s.set(func() { s.err = errors.New("still drawing") })
		if size[0] > 100 {
			s.until("the error", contains("still drawing"))
		}
	}
}

// TestHostileNames: names and notes come from other processes. None moves a column, clears the
// screen or sets a title.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	hostile := []string{
		"\x1b[2J\x1b[Hcleared", "\x1b]0;title\a", "a\tb\nc\rd", "\u009b2J", "\u202eback", "\xff\xfe", "\x00",
		"漢字と漢字と漢字と漢字と漢字", "e\u0301te\u0301", "\u0301alone", "z" + strings.Repeat("\u0300\u0301", 40) + "algo",
		"👨‍👩‍👧‍👦", "🇩🇪🇫🇷🇩🇪", "☺\ufe0f", "שלום", "long" + strings.Repeat("-", 400), " ", "\u3000",
	}
	s := show(t, 80, 40, names(hostile...))
	lines := s.until("all names", func(lines []string) bool { return strings.Contains(lines[2+len(hostile)], "1h00m") })
	lease := strings.Index(lines[2], "LEASE")
	age := strings.Index(lines[2], "AGE") + len("AGE")
	if lease < 0 || !strings.HasPrefix(lines[0], "fencelock top") {
		t.Fatalf("the screen is\n%s", strings.Join(lines, "\n"))
	}
	for i := range hostile {
		row := lines[3+i]
		if len(row) != 80 || row[age-5:age] != "1h00m" || row[lease:lease+5] != "***--" {
			t.Errorf("row %d is not aligned:\n%s\n%s", i, lines[2], row)
		}
	}
	s.emulator.SendRaw([]byte("G\r"))
	s.until("the pane", contains("exclusive, 1 holding"))
	if title := s.emulator.GetTitle(); title != "" {
		t.Errorf("the title is %q", title)
	}
}

// TestListsRarely: there is one listing at a time, and listing takes at most a tenth of the time.
func TestListsRarely(t *testing.T) {
	t.Parallel()
	s := show(t, 80, 24, names("x"))
	s.set(func() { s.takes = 50 * time.Millisecond })
	s.until("a name", contains("host-x"))
	s.set(func() { s.asked = 0 })
	began := time.Now()
	for time.Since(began) < 2*time.Second {
		s.emulator.SendRaw([]byte("sr/a\x7f\rpp"))
		time.Sleep(100 * time.Millisecond)
	}
	elapsed := time.Since(began)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.max != 1 {
		t.Errorf("%d listings at once", s.max)
	}
	if most := int(elapsed/(500*time.Millisecond)) + 2; s.asked > most {
		t.Errorf("%d listings of 50 ms in %v, want at most %d", s.asked, elapsed, most)
	}
}

func TestPauseAsksNothing(t *testing.T) {
	t.Parallel()
	s := show(t, 80, 24, names("x"))
	s.until("a name", contains("host-x"))
	s.emulator.SendRaw([]byte("p"))
	s.until("the pause", contains("PAUSED"))
	time.Sleep(50 * time.Millisecond) // a listing may be on its way
	s.set(func() { s.asked, s.list = 0, names("y") })
	time.Sleep(300 * time.Millisecond)
	s.set(func() {
		if s.asked > 0 {
			t.Errorf("%d listings in a pause", s.asked)
		}
	})
	s.emulator.SendRaw([]byte("p"))
	s.until("what is new", contains("host-y"))
}

func TestErrors(t *testing.T) {
	t.Parallel()
	s := show(t, 80, 24, nil)
	s.until("an empty list", contains("no lock is held"))
	s.set(func() { s.err = errors.New("no\x1b[2Jpermission") })
	s.until("the mark", contains("STALE"))
	s.until("the error", contains("no [2Jpermission"))
	s.set(func() { s.list = names("y") }) // with an error, a list has what could be read
	s.until("the name", contains("host-y"))
	s.until("no mark", func(lines []string) bool { return !contains("STALE")(lines) && contains("permission")(lines) })
	s.set(func() { s.err, s.list = nil, nil })
	s.until("no error", func(lines []string) bool { return !contains("permission")(lines) })
}

// TestPanicRestoresTheTerminal: a panic while an engine lists ends Run after the terminal was
// restored.
func TestPanicRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	s := show(t, 80, 24, names("x"))
	s.until("a name", contains("host-x"))
	s.set(func() { s.crash = true })
	if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "a broken engine") || !strings.Contains(err.Error(), "listing") {
		t.Errorf("Run ended with %v", err)
	}
	s.emulator.mu.Lock()
	defer s.emulator.mu.Unlock()
	if raw := s.emulator.raw.String(); strings.LastIndex(raw, "\x1b[?1049l") < strings.LastIndex(raw, "\x1b[?1049h") || !strings.Contains(raw, "\x1b[?25h") {
		t.Errorf("the terminal was not restored: %q", raw)
	}
}

// TestFirstListingFails: without a picture, the error ends top.
func TestFirstListingFails(t *testing.T) {
	t.Parallel()
	failed := errors.New("nobody is there")
	s := &shown{emulator: &recorder{MockTerm: vt.NewMockTerm()}}
	screen, err := tcell.NewTerminfoScreenFromTty(s.emulator, tcell.OptNegotiation(false))
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		t.Fatal(err)
	}
	list := func(context.Context) ([]fencelock.Status, error) { return nil, failed }
	if _, err := top.Run(t.Context(), screen, top.Config{Every: time.Second, List: list}); !errors.Is(err, failed) || errors.Is(err, top.ErrTerminal) {
		t.Errorf("Run ended with %v", err)
	}
}
