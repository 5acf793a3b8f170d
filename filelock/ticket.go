package filelock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// A ticket is one request that waits or holds: a file whose name says its place
// and whose flock says that its maker lives.
type ticket struct {
	seq   int64
	mode  driver.Mode
	limit int
	held  bool
	owner string
}

// base is the ticket's file name: place, mode, state and owner.
func (t ticket) base() string {
	mode, state := "x", "w"
	if t.mode == driver.Shared {
		mode = "s"
		if t.limit > 0 {
			mode += strconv.Itoa(t.limit)
		}
	}
	if t.held {
		state = "h"
	}
	return fmt.Sprintf("%0*d.%s.%s.%s", numberWidth, t.seq, mode, state, t.owner)
}

// parseTicket is the inverse of base; ok is false for any other file.
func parseTicket(base string) (t ticket, ok bool) {
	parts := strings.Split(base, ".")
	if len(parts) != 4 || len(parts[0]) != numberWidth || parts[1] == "" {
		return ticket{}, false
	}
	seq, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return ticket{}, false
	}
	t = ticket{seq: seq, held: parts[2] == "h", owner: parts[3]}
	if parts[1] != "x" {
		t.mode = driver.Shared
		if n := parts[1][1:]; n != "" {
			t.limit, err = strconv.Atoi(n)
		}
	}
	return t, err == nil && t.base() == base
}

// A record is what a ticket's file tells about it.
type record struct {
	Owner string    `json:"owner"`
	Token int64     `json:"token,omitempty"`
	Host  string    `json:"host,omitempty"`
	PID   int       `json:"pid,omitempty"`
	Note  string    `json:"note,omitempty"`
	Since time.Time `json:"since"`
	Mode  string    `json:"mode"`
	Limit int       `json:"limit,omitempty"`

	// Machine and Process are where the ticket really lives; Host and PID are
	// what its maker wants people to see.
	Machine string `json:"machine"`
	Process int    `json:"process"`
}

// An ending is what is appended to a ticket's file before it is removed. A
// ticket without one died with its process.
type ending struct {
	End    string `json:"end"` // "released" or "broken"
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (r *record) identity() driver.Identity {
	return driver.Identity{Host: r.Host, PID: r.PID, Note: r.Note}
}

// readRecord reads a ticket's file, with its ending if it has one.
func readRecord(f *os.File) (r record, end ending, err error) {
	info, err := f.Stat()
	if err != nil {
		return r, end, err
	}
	b := make([]byte, info.Size())
	n, _ := f.ReadAt(b, 0)
	d := json.NewDecoder(strings.NewReader(string(b[:n])))
	if err := d.Decode(&r); err != nil {
		return r, end, fmt.Errorf("ticket %q cannot be read: %w", f.Name(), err)
	}
	_ = d.Decode(&end) // most have none
	return r, end, nil
}

// appendEnding notes how a ticket ended. Nothing but what people read depends
// on it, so a full disk does not matter.
func appendEnding(path string, end ending) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	defer f.Close()
	b, _ := json.Marshal(end)
	_, _ = f.Write(append([]byte("\n"), b...))
}

// tickets returns the tickets of the name in order. What a crashed process left
// half made is removed: nobody makes a ticket while we are in the gate.
func (g *gate) tickets() ([]ticket, error) {
	all, others, err := listTickets(g.dir)
	for _, base := range others {
		if strings.HasPrefix(base, "new.") {
			os.Remove(g.path(base))
		}
	}
	return all, err
}

// listTickets reads a name's directory: its tickets in order, and what else is
// there.
func listTickets(dir string) (all []ticket, others []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if t, ok := parseTicket(entry.Name()); ok {
			all = append(all, t)
		} else {
			others = append(others, entry.Name())
		}
	}
	return all, others, err
}

// open opens a live ticket. A dead one is removed and, like a missing one, nil.
func (g *gate) open(t ticket) (*os.File, error) {
	path := g.path(t.base())
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch err := flock(f, lockShared); {
	case errors.Is(err, errBusy):
		return f, nil
	case err != nil:
		f.Close()
		return nil, err
	}
	f.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, nil
}

// createTicket makes the file of a ticket, locked for as long as its process lives.
// It appears under its name only when it is locked and complete.
func (g *gate) createTicket(t ticket, r *record) (f *os.File, err error) {
	temp := g.path("new." + t.owner)
	f, err = os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err = flock(f, lockExclusive); err == nil {
		err = writeRecord(f, r)
	}
	if err == nil {
		err = os.Rename(temp, g.path(t.base()))
	}
	if err != nil {
		os.Remove(temp)
		f.Close()
		return nil, err
	}
	return f, nil
}

// writeRecord writes the record over the one its file may have, padded so that
// nothing of that one shows.
func writeRecord(f *os.File, r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if info, err := f.Stat(); err == nil && info.Size() > int64(len(b)) {
		b = append(b, strings.Repeat(" ", int(info.Size())-len(b))...)
	}
	_, err = f.WriteAt(b, 0)
	return err
}
