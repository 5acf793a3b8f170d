//go:build unix

package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// When a wait is reported.
const (
	patience = time.Second     // on a terminal: after this time
	troubled = 5 * time.Second // elsewhere: after this time, if the engine itself grants nothing
	logEvery = time.Minute     // interval of the log lines of run
)

// waitLine reports the state of a wait. On a terminal it shows a line that is updated every second.
// Elsewhere it logs that the engine grants nothing, with --verbose each change, and at an interval
// the wait itself.
type waitLine struct {
	app  *App
	name string          // of the lock
	log  time.Duration   // interval of log lines; 0: none
	live bool            // stderr is a terminal
	ctx  context.Context // ends at stop
	end  func()          // ends ctx
	over sync.WaitGroup

	mu    sync.Mutex      // guards info, began and shown
	info  driver.WaitInfo // the latest report
	began time.Time
	shown bool // something was printed that must be wiped, or not be repeated
}

// newWaitLine starts the report. The caller must call stop.
func newWaitLine(a *App, name string, log time.Duration) *waitLine {
	l := &waitLine{app: a, name: name, log: log, live: isTTY(a.Stderr), began: time.Now()}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.over.Go(l.show) // ends at stop
	return l
}

// update stores what the engine reports during the wait, from any goroutine. It does not block.
func (l *waitLine) update(info driver.WaitInfo) {
	l.mu.Lock()
	l.info = info
	l.mu.Unlock()
	l.app.detail("%s", l.text(info))
	if !l.live {
		l.reportTrouble()
	}
}

// reportTrouble reports once that the engine grants nothing, some time after the start of the wait.
func (l *waitLine) reportTrouble() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.shown && !l.app.verbose && trouble(l.info) != "" && time.Since(l.began) > troubled {
		l.shown = true
		l.app.Say("%s", l.text(l.info))
	}
}

// trouble returns why the engine grants nothing, or "" if a process holds the name.
func trouble(info driver.WaitInfo) string {
	if info.Trouble == nil {
		return ""
	}
	return info.Trouble.Error()
}

// stop ends the report and wipes the line. It may be called once.
func (l *waitLine) stop() {
	l.end()
	l.over.Wait()
	if l.shown && l.live && !Dumb() {
		fmt.Fprint(l.app.Stderr, "\r\x1b[K")
	}
}

// show updates the line every second. Away from a terminal it wakes up rarely, since many processes
// may wait.
func (l *waitLine) show() {
	if !l.lasts(patience) {
		return
	}
	notifyService(fmt.Sprintf("STATUS=waiting for the lock %q", l.name))
	defer notifyService("STATUS=")
	debug.FreeOSMemory() // the start needed more memory than the wait, which may last for hours
	if !l.live {
		if l.lasts(troubled - patience) {
			l.reportTrouble()
			l.report()
		}
		return
	}
	for l.draw(); l.lasts(patience); {
		l.draw()
	}
}

// report logs the wait at the interval log.
func (l *waitLine) report() {
	for l.log > 0 && l.lasts(l.log-time.Since(l.began)%l.log) {
		l.mu.Lock()
		info := l.info
		l.mu.Unlock()
		l.app.Say("%s", l.timed(info))
	}
}

// timed is text with the duration of the wait.
func (l *waitLine) timed(info driver.WaitInfo) string {
	return fmt.Sprintf("%v, %s", time.Since(l.began).Round(time.Second), l.text(info))
}

// lasts waits for d and reports whether the wait continues.
func (l *waitLine) lasts(d time.Duration) bool { return retry.Sleep(l.ctx, d) }

// draw writes the line over the previous one. A dumb terminal gets it once. The line has no
// newline, so that later output can be written over it.
func (l *waitLine) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := "fencelock: " + l.timed(l.info)
	switch {
	case !Dumb():
		fmt.Fprint(l.app.Stderr, "\r\x1b[K"+Cut(text, Columns(l.app.Stderr)))
	case !l.shown:
		fmt.Fprintln(l.app.Stderr, text)
	}
	l.shown = true
}

// Dumb reports whether the terminal cannot erase a line.
func Dumb() bool { return os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" }

// text describes the wait: why the engine grants nothing, or the state at the start of the wait. It
// quotes or replaces control characters in notes and names, since those come from other processes.
func (l *waitLine) text(info driver.WaitInfo) string {
	text, sep := fmt.Sprintf("waiting for %q", l.name), "; at the start: "
	if problem := trouble(info); problem != "" {
		if mayBeNew(problem) {
			problem += "; for new servers: fencelock init"
		}
		return text + ": " + termtext.Line(problem)
	}
	if info.Position > 0 {
		text, sep = fmt.Sprintf("%s%sposition %d", text, sep, info.Position), ", "
	}
	h := info.Held
	switch {
	case h == nil || h.PID == 0 && h.Owner == "":
		return text
	case h.PID == 0:
		return text + sep + "held by " + termtext.Word(h.Owner) // a lock of another program
	}
	text += fmt.Sprintf("%sheld by pid %d on %s", sep, h.PID, termtext.Word(h.Host))
	if h.Note != "" {
		text += fmt.Sprintf(" (%s)", termtext.Line(h.Note))
	}
	if !h.Since.IsZero() {
		text += " since " + h.Since.Local().Format(time.TimeOnly)
	}
	return text
}

// Cut shortens text to one row of the terminal, since a second row could not be wiped.
func Cut(text string, columns int) string {
	if runes := []rune(text); columns > 1 && len(runes) >= columns {
		return string(runes[:columns-1])
	}
	return text
}

// notifyService sends a line to systemd, if this process belongs to a service that is asked for it. It
// blocks for serviceLimit at most. The line is only for people, so a failure has no effect.
func notifyService(line string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(serviceLimit)) // sockets have deadlines
	_, _ = conn.Write([]byte(line))
}

const serviceLimit = 100 * time.Millisecond
