package filelock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/identity"
)

// A ticket is a waiting or holding request: a file whose name has its data and whose flock shows
// that its process is alive.
type ticket struct {
	seq    int64
	mode   driver.Mode
	limit  int
	weight int // how much of the limit it uses; 0 without a limit
	held   bool
	owner  string
}

// noPlace is the place of a ticket without a file.
const noPlace = math.MaxInt64

// units returns how much of a limit the ticket uses.
func (t ticket) units() int { return max(1, t.weight) }

// kind returns the part of the file name for the request: "x" for exclusive, "s" for shared, "s5"
// with a limit, "s5w2" with a limit and a weight.
func (t ticket) kind() string {
	switch {
	case t.mode != driver.Shared:
		return "x"
	case t.limit <= 0:
		return "s"
	case t.weight <= 1:
		return "s" + strconv.Itoa(t.limit)
	}
	return fmt.Sprintf("s%dw%d", t.limit, t.weight)
}

// parseKind is the inverse of kind, for results of kind.
func (t *ticket) parseKind(kind string) (err error) {
	if kind == "x" {
		return nil
	}
	t.mode = driver.Shared
	limit, weight, weighs := strings.Cut(kind[1:], "w")
	if limit == "" {
		return nil
	}
	t.weight = 1
	if weighs {
		if t.weight, err = strconv.Atoi(weight); err != nil {
			return err
		}
	}
	t.limit, err = strconv.Atoi(limit)
	return err
}

// fileName returns the ticket's file name: place, kind, state and owner.
func (t ticket) fileName() string {
	state := "w"
	if t.held {
		state = "h"
	}
	return fmt.Sprintf("%0*d.%s.%s.%s", numberWidth, t.seq, t.kind(), state, t.owner)
}

// parseTicket is the inverse of fileName. ok is false for other files.
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
	err = t.parseKind(parts[1])
	return t, err == nil && t.fileName() == base
}

// A record is the content of a ticket's file.
type record struct {
	Owner string `json:"owner"`
	Token int64  `json:"token,omitempty"`
	identity.JSON
	Since  time.Time `json:"since"`
	Mode   string    `json:"mode"`
	Limit  int       `json:"limit,omitempty"`
	Weight int       `json:"weight,omitempty"`

	// Machine and Process identify the process of the ticket. Host and PID are the identity in the
	// request, which is shown to users.
	Machine string `json:"machine"`
	Process int    `json:"process"`
}

// maxRecord is the longest ticket file that is read or written to its end. Another user may have
// made a file of this process longer.
const maxRecord = 1 << 20

// An ending is appended to a ticket's file before the file is removed. A ticket without one died
// with its process.
type ending struct {
	End    string `json:"end"` // "released" or "broken"
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// readRecord reads a ticket's file, with the ending if there is one.
func readRecord(f *os.File) (r record, end ending, err error) {
	info, err := f.Stat()
	if err != nil {
		return r, end, err
	}
	b := make([]byte, min(info.Size(), maxRecord))
	n, _ := f.ReadAt(b, 0)
	d := json.NewDecoder(strings.NewReader(string(b[:n])))
	if err := d.Decode(&r); err != nil {
		return r, end, fmt.Errorf("ticket %q cannot be read: %w", f.Name(), err)
	}
	_ = d.Decode(&end) // most tickets have none
	return r, end, nil
}

// appendEnding appends to the record how the ticket ended. It is only informative, so errors (such
// as a full disk) are ignored.
func appendEnding(f *os.File, end ending) {
	info, err := f.Stat()
	if err != nil {
		return
	}
	if info.Size() > maxRecord {
		return
	}
	b, _ := json.Marshal(end)
	_, _ = f.WriteAt(append([]byte("\n"), b...), info.Size())
}

// tickets returns the tickets of the name in order. Under the directory lock it also removes the
// temporary files of crashed processes; no other process creates tickets meanwhile.
func (g *nameLock) tickets() ([]ticket, error) {
	all, others, err := g.listTickets()
	if !g.inside {
		return all, err
	}
	for _, base := range others {
		if owner, ok := strings.CutPrefix(base, fifoPrefix); strings.HasPrefix(base, "new.") || strings.HasPrefix(base, halfMade) || ok && !waits(all, owner) {
			_ = g.remove(base)
		}
	}
	return all, err
}

// fifoPrefix begins the file name of a waiter's FIFO; see createFIFO.
const fifoPrefix = "bell."

func fifoOf(owner string) string { return fifoPrefix + owner }

// waits reports whether owner has a waiting ticket.
func waits(all []ticket, owner string) bool {
	return slices.ContainsFunc(all, func(t ticket) bool { return !t.held && t.owner == owner })
}

// listTickets reads the folder of a name: its tickets in order, and the names of its other files.
func (d *folder) listTickets() (all []ticket, others []string, err error) {
	names, err := d.names()
	for _, base := range names {
		if t, ok := parseTicket(base); ok {
			all = append(all, t)
		} else {
			others = append(others, base)
		}
	}
	return all, others, err
}

// openTicket opens a live ticket. It removes a dead one, and returns nil for dead and missing ones.
// A ticket is alive if its flock is taken: the kernel releases it when the last process that has
// the file open is gone. The test takes a shared flock, so that two processes that test do not see
// each other's.
func (g *nameLock) openTicket(t ticket) (*os.File, error) {
	f, err := g.openFile(t.fileName(), os.O_RDONLY)
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
	if !g.inside {
		return nil, nil
	}
	if err := g.remove(t.fileName()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, nil
}

// createTicket creates the file of a ticket and locks it. The file appears under its name only when
// it is locked and complete, because an unlocked ticket would count as dead and be removed.
func (g *nameLock) createTicket(t ticket, r *record) (f *os.File, err error) {
	temp := "new." + t.owner
	f, err = g.createFile(temp)
	if err != nil {
		return nil, err
	}
	if err = flock(f, lockExclusive); err == nil {
		err = writeRecord(f, r)
	}
	if err == nil {
		err = g.rename(temp, t.fileName())
	}
	if err != nil {
		_ = g.remove(temp)
		f.Close()
		return nil, err
	}
	return f, nil
}

// writeRecord overwrites the record in a ticket's file, padded to hide the old one. It writes in
// place, since a new file would have a new flock, and the ticket would be dead for a moment.
func writeRecord(f *os.File, r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if info, err := f.Stat(); err == nil && info.Size() > int64(len(b)) && info.Size() <= maxRecord {
		b = append(b, strings.Repeat(" ", int(info.Size())-len(b))...)
	}
	_, err = f.WriteAt(b, 0)
	return err
}
