package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Read joins the event files of all processes of a run. A folder stands for the .jsonl files in it.
// The history starts with its first event; see also [History.StartAt]. A file that [History.Write]
// wrote must be the only one.
func Read(files ...string) (*History, error) {
	files, err := expand(files)
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if len(files) == 1 && bytes.HasPrefix(text, []byte(runPrefix)) {
			return decode(bytes.NewReader(text))
		}
		more, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		events = append(events, more...)
	}
	return join(events), nil
}

// expand replaces folders by the files in them.
func expand(files []string) (all []string, err error) {
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			all = append(all, name)
			continue
		}
		within, err := filepath.Glob(filepath.Join(name, "*.jsonl"))
		if err != nil {
			return nil, err
		}
		all = append(all, within...)
	}
	return all, nil
}

// parse parses the lines of a file. The last one may be incomplete, after a kill.
func parse(text []byte) (events []Event, err error) {
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// A record is a line of a written history: the run, and then all else.
type record struct {
	Run         *History      `json:"run,omitempty"`
	Acquisition *Acquisition  `json:"acquisition,omitempty"`
	Wait        *Wait         `json:"wait,omitempty"`
	Write       *GuardedWrite `json:"write,omitempty"`
	Fault       *Fault        `json:"fault,omitempty"`
	Wrong       *Event        `json:"wrong,omitempty"`
	Violation   *Violation    `json:"violation,omitempty"`
	Expected    *Violation    `json:"expected,omitempty"`
}

const runPrefix = `{"run":`

// Write writes h as JSON lines, which Read reads.
func (h *History) Write(w io.Writer) error {
	buffer := bufio.NewWriter(w)
	lines := json.NewEncoder(buffer)
	err := lines.Encode(record{Run: h})
	each(&err, lines, h.Acquisitions, func(a *Acquisition) record { return record{Acquisition: a} })
	each(&err, lines, h.Waits, func(a *Wait) record { return record{Wait: a} })
	each(&err, lines, h.Writes, func(a *GuardedWrite) record { return record{Write: a} })
	each(&err, lines, h.Faults, func(a *Fault) record { return record{Fault: a} })
	each(&err, lines, h.Wrong, func(a *Event) record { return record{Wrong: a} })
	each(&err, lines, h.Violations, func(a *Violation) record { return record{Violation: a} })
	each(&err, lines, h.Expected, func(a *Violation) record { return record{Expected: a} })
	return cmp.Or(err, buffer.Flush())
}

// each writes a line for each item, until there is an error.
func each[T any](err *error, lines *json.Encoder, items []T, of func(*T) record) {
	for i := range items {
		if *err == nil {
			*err = lines.Encode(of(&items[i]))
		}
	}
}

// decode reads what Write wrote.
func decode(r io.Reader) (*History, error) {
	h := &History{}
	lines := json.NewDecoder(r)
	for {
		var l record
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF):
			return h, nil
		case err != nil:
			return nil, err
		}
		if l.Run != nil {
			h = l.Run
		}
		h.Acquisitions = add(h.Acquisitions, l.Acquisition)
		h.Waits = add(h.Waits, l.Wait)
		h.Writes = add(h.Writes, l.Write)
		h.Faults = add(h.Faults, l.Fault)
		h.Wrong = add(h.Wrong, l.Wrong)
		h.Violations = add(h.Violations, l.Violation)
		h.Expected = add(h.Expected, l.Expected)
	}
}

// add appends an item, if there is one.
func add[T any](items []T, item *T) []T {
	if item == nil {
		return items
	}
	return append(items, *item)
}
