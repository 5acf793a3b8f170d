package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Read joins the event files of all processes of a run. A folder stands for the .jsonl files in it.
// A file that [History.Write] wrote must be the only one. The history starts with its first event, or
// with one of kind [Start].
func Read(files ...string) (*History, error) {
	var events []Event
	for _, name := range files {
		within := []string{name}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			if within, err = filepath.Glob(filepath.Join(name, "*.jsonl")); err != nil {
				return nil, err
			}
		}
		for _, name := range within {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			lines := strings.NewReader(string(text))
			if strings.HasPrefix(string(text), runPrefix) {
				return decode(lines)
			}
			if events, err = parse(lines, events); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return join(events), nil
}

// parse appends the events of a file. The last line may be incomplete, after a kill.
func parse(r io.Reader, events []Event) ([]Event, error) {
	for lines := json.NewDecoder(r); ; {
		var e Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return events, nil
		case err != nil:
			return nil, err
		}
		events = append(events, e)
	}
}

const runPrefix = `{"engine":` // of the first line of a written history

// Write writes h as JSON lines, which Read reads: first what there is one of, then an object for each
// element of a list, with the name of the list.
func (h *History) Write(w io.Writer) error {
	buffer := bufio.NewWriter(w)
	lines := json.NewEncoder(buffer)
	return cmp.Or(lines.Encode(h), put(lines, "acquisition", h.Acquisitions), put(lines, "wait", h.Waits), put(lines, "write", h.Writes),
		put(lines, "fault", h.Faults), put(lines, "wrong", h.Wrong), put(lines, "violation", h.Violations), put(lines, "expected", h.Expected),
		buffer.Flush())
}

func put[T any](lines *json.Encoder, list string, all []T) (err error) {
	for _, one := range all {
		err = cmp.Or(err, lines.Encode(map[string]T{list: one}))
	}
	return err
}

// decode reads what Write wrote.
func decode(r io.Reader) (*History, error) {
	h, lines := &History{}, json.NewDecoder(r)
	if err := lines.Decode(h); err != nil {
		return nil, err
	}
	for {
		var one struct {
			Acquisition         *Acquisition
			Wait                *Wait
			Write, Wrong        *Event
			Fault               *Fault
			Violation, Expected *Violation
		}
		if err := lines.Decode(&one); errors.Is(err, io.EOF) {
			return h, nil
		} else if err != nil {
			return nil, err
		}
		add(&h.Acquisitions, one.Acquisition)
		add(&h.Waits, one.Wait)
		add(&h.Writes, one.Write)
		add(&h.Faults, one.Fault)
		add(&h.Wrong, one.Wrong)
		add(&h.Violations, one.Violation)
		add(&h.Expected, one.Expected)
	}
}

func add[T any](list *[]T, one *T) {
	if one != nil {
		*list = append(*list, *one)
	}
}
