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
// A file that [History.Write] wrote must be the only one. The history starts with its first event, or
// with one of kind [Start].
func Read(files ...string) (*History, error) {
	h := &History{}
	for _, name := range files {
		within := []string{name}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			if within, err = filepath.Glob(filepath.Join(name, "*.jsonl")); err != nil {
				return nil, err
			}
		}
		for _, name := range within {
			text, err := os.ReadFile(name)
			if err == nil {
				err = h.parse(text)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	h.join()
	return h, nil
}

// beginsRun reports whether a text is what [History.Write] wrote. Lines of events and of logs have no rules.
func beginsRun(text []byte) bool {
	var first struct{ Engine, Rules json.RawMessage }
	err := json.NewDecoder(bytes.NewReader(text)).Decode(&first)
	return err == nil && first.Engine != nil && first.Rules != nil
}

// parse appends the events of a file. The last line may be incomplete, after a kill.
func (h *History) parse(text []byte) error {
	lines := json.NewDecoder(bytes.NewReader(text))
	if beginsRun(text) {
		if err := lines.Decode(h); err != nil {
			return err
		}
	}
	for {
		var e Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		case e.Kind == "":
			return errors.New("a line is no event; the history of a run must be alone")
		}
		h.Events = append(h.Events, e)
	}
}

// readRun reads what Write wrote.
func readRun(r io.Reader) (*History, error) {
	h := &History{}
	text, err := io.ReadAll(r)
	if err == nil {
		err = h.parse(text)
	}
	if err != nil {
		return nil, err
	}
	h.join()
	return h, nil
}

// Write writes h as JSON lines, which Read reads: first what was found, then the events.
func (h *History) Write(w io.Writer) error {
	buffer := bufio.NewWriter(w)
	lines := json.NewEncoder(buffer)
	err := lines.Encode(h)
	for _, e := range h.Events {
		err = cmp.Or(err, lines.Encode(e))
	}
	return cmp.Or(err, buffer.Flush())
}
