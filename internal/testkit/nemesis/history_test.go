//go:build linux

package nemesis_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/chaostest/history"
)

// now reads the clock that all processes of this machine share.
func now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // a machine without it runs no Go
	return time.Duration(t.Nano())
}

// A diary is a file in which a worker writes what it holds, each line at once: it
// may be killed at any time.
type diary struct{ file *os.File }

// grant notes what was acquired. It counts only once it has been believed.
func (d diary) grant(id string, g history.Acquisition) error {
	return d.write("grant %s %s %t %d %d %d %d %d", id, g.Name, g.Shared, g.Limit, g.Token, g.Called, g.Returned, g.MinHold)
}

// believed notes a moment at which Err was nil, or later.
func (d diary) believed(id string, at time.Duration) error {
	return d.write("believed %s %d", id, at)
}

// wrong notes an error that must not be.
func (d diary) wrong(err error) error { return d.write("wrong %q", err) }

// counts notes that something has happened that may happen.
func (d diary) counts(what string) error { return d.write("counts %s", what) }

// write adds a line, which crosses no page unless it is very long: a kill in the middle of
// the write leaves all of it or nothing.
func (d diary) write(format string, args ...any) error {
	const step = 256
	line := fmt.Sprintf(format, args...)
	_, err := fmt.Fprintf(d.file, "%-*s\n", (len(line)/step+1)*step-1, line)
	return err
}

// Records are what all workers have written.
type records struct {
	grants map[string]*history.Acquisition
	wrong  []string
	counts map[string]int
}

// read adds a diary.
func (h *records) read(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if err := h.line(lines.Text()); err != nil {
			return fmt.Errorf("%s: %q: %w", file, lines.Text(), err)
		}
	}
	return lines.Err()
}

func (h *records) line(line string) error {
	what, rest, _ := strings.Cut(strings.TrimRight(line, " "), " ")
	switch what {
	case "grant":
		id, g := "", &history.Acquisition{}
		_, err := fmt.Sscan(rest, &id, &g.Name, &g.Shared, &g.Limit, &g.Token, &g.Called, &g.Returned, &g.MinHold)
		g.ID, h.grants[id] = id, g
		return err
	case "believed":
		id, at := "", time.Duration(0)
		_, err := fmt.Sscan(rest, &id, &at)
		if g := h.grants[id]; g != nil {
			g.Until = max(g.Until, at)
		}
		return err
	case "wrong":
		h.wrong = append(h.wrong, rest)
	case "counts":
		h.counts[rest]++
	default:
		return errors.New("no such entry")
	}
	return nil
}

// believed returns the acquisitions that somebody believed in, counted from a moment.
func (h *records) believed(since time.Duration) (all []history.Acquisition) {
	for _, a := range h.grants {
		if a.Until == 0 {
			continue
		}
		g := *a
		g.Called, g.Returned, g.Until = g.Called-since, g.Returned-since, g.Until-since
		all = append(all, g)
	}
	return all
}
