//go:build unix

package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// TestWaitsAreLoggedEveryMinute: the wait is logged once a minute, and each line starts with the
// time.
func TestWaitsAreLoggedEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := time.Now().Add(-5 * time.Second)
		text := ", waiting for \"x\"; at the start: position 2, held by pid 7 on db1 since " + since.Local().Format(time.TimeOnly) + "\n"
		for every, want := range map[time.Duration]string{
			logEvery: "fencelock: 1m0s" + text + "fencelock: 2m0s" + text,
			0:        "",
		} {
			var talk bytes.Buffer
			l := newWaitLine(&App{Stderr: &talk}, "x", every)
			held := &driver.HeldError{Name: "x", Since: since, Identity: driver.Identity{Host: "db1", PID: 7}}
			l.update(driver.WaitInfo{Position: 2, Held: held})
			time.Sleep(2*time.Minute + 30*time.Second)
			l.stop()
			if got := talk.String(); got != want {
				t.Errorf("every %v: %s", every, strings.TrimSpace(got))
			}
		}
	})
}

// TestWaitLineIsFitForATerminal: control sequences in names and notes of other processes do not
// reach the terminal.
func TestWaitLineIsFitForATerminal(t *testing.T) {
	l := &waitLine{name: "x\x1b[2J"}
	for _, info := range []driver.WaitInfo{
		{Held: &driver.HeldError{Identity: driver.Identity{Host: "db1\x1b]0;x\a", PID: 7, Note: "n\x1b[31m"}}},
		{Held: &driver.HeldError{Owner: "plain\x1b[31m"}},
		{Trouble: errors.New("h1: \x1b[31m")},
	} {
		if text := l.text(info); strings.ContainsAny(text, "\x1b\a") {
			t.Errorf("%q", text)
		}
	}
}

// TestWaitForNewServers: if a Redis grants nothing since it may have lost its locks, the wait line
// says that init ends the wait if the server is new.
func TestWaitForNewServers(t *testing.T) {
	l := &waitLine{name: "x"}
	trouble := errors.New("h1: it may have lost its data, and does not vote until noon")
	const want = `waiting for "x": h1: it may have lost its data, and does not vote until noon; for new servers: fencelock init`
	if got := l.text(driver.WaitInfo{Trouble: trouble}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
