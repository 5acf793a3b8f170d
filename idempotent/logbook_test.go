//go:build unix

package idempotent_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// A logbook is what a job works on: a file of its own, in which each run writes its beginning and
// its end, with its token. It has a lock of its own for each step, and so shows every run that
// overlaps.
type logbook struct{ dir, name string }

// An entry is one line of a logbook.
type entry struct {
	what  string // "enter" or "leave"
	token int64
	pid   int
	nanos int64
}

func (e entry) String() string { return fmt.Sprintf("%s %d %d %d", e.what, e.token, e.pid, e.nanos) }

var errOvertaken = errors.New("a greater token was here")

// enter is the beginning of a hold: errOvertaken if somebody with the same or a
// greater token was here.
func (b logbook) enter(token int64) error {
	return b.write("enter", token, func(last entry) bool { return last.token < token })
}

// leave is its end: errOvertaken if anybody came meanwhile.
func (b logbook) leave(token int64) error {
	return b.write("leave", token, func(last entry) bool { return last.what == "enter" && last.token == token })
}

// write adds a line if the last one is as it should be.
func (b logbook) write(what string, token int64, fine func(last entry) bool) error {
	f, err := os.OpenFile(b.path(), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() // and frees the file
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	last, err := lastEntry(f)
	if err != nil {
		return err
	}
	if !fine(last) {
		return fmt.Errorf("%w: %s %d after %q", errOvertaken, what, token, last)
	}
	// No line crosses a page: a kill in the middle of a write leaves all of it or nothing.
	_, err = fmt.Fprintf(f, "%-63s\n", entry{what, token, os.Getpid(), time.Now().UnixNano()})
	return err
}

// lastEntry reads the last line, the zero entry if there is none.
func lastEntry(f *os.File) (e entry, err error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return e, err
	}
	tail := make([]byte, min(info.Size(), 200))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return e, err
	}
	lines := bytes.Split(bytes.TrimSpace(tail), []byte("\n"))
	return parse(string(lines[len(lines)-1]))
}

func parse(line string) (e entry, err error) {
	_, err = fmt.Sscan(line, &e.what, &e.token, &e.pid, &e.nanos)
	if err != nil {
		err = fmt.Errorf("line %q: %w", line, err)
	}
	return e, err
}

// entries reads the whole book.
func (b logbook) entries() (all []entry, err error) {
	text, err := os.ReadFile(b.path())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(text) {
		e, err := parse(string(line))
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, err
}

func (b logbook) path() string { return filepath.Join(b.dir, b.name+".log") }
