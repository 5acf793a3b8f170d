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

// lines returns what a written history has in its lines: what there is one of, and then the lists.
func (h *History) lines() []any {
	return []any{h, &h.Acquisitions, &h.Waits, &h.Writes, &h.Faults, &h.Wrong, &h.Violations, &h.Expected}
}

// Write writes h as JSON lines, which Read reads.
func (h *History) Write(w io.Writer) (err error) {
	buffer := bufio.NewWriter(w)
	for _, line := range h.lines() {
		err = cmp.Or(err, json.NewEncoder(buffer).Encode(line))
	}
	return cmp.Or(err, buffer.Flush())
}

// decode reads what Write wrote.
func decode(r io.Reader) (*History, error) {
	h, lines := &History{}, json.NewDecoder(r)
	for _, line := range h.lines() {
		if err := lines.Decode(line); err != nil {
			return nil, err
		}
	}
	return h, nil
}
