package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// The environment of a process that records its history.
const (
	envDir    = "FENCELOCK_HISTORY"        // the folder of the files
	envWorker = "FENCELOCK_HISTORY_WORKER" // the lane of the process
)

// Env returns the variables of the environment with which [FromEnv] creates the file of a process in
// dir.
func Env(dir, worker string) []string { return []string{envDir + "=" + dir, envWorker + "=" + worker} }

// A Writer appends the events of one process to a file of its own. It is safe for concurrent use. A
// nil Writer discards events.
type Writer struct {
	worker string
	file   *os.File
}

// Create creates the file of this process in dir, and records the birth of worker. No two processes
// that run at the same time may be the same worker. A test that records only faults and the deaths
// of others has no worker.
func Create(dir, worker string) (*Writer, error) {
	file, err := os.CreateTemp(dir, "events-*.jsonl")
	if err != nil {
		return nil, err
	}
	w := &Writer{worker, file}
	return w, w.Write(Event{Kind: Birth})
}

// FromEnv creates the file of this process where the environment says so. It returns nil if the
// environment does not ask for a history.
func FromEnv() (*Writer, error) {
	dir := os.Getenv(envDir)
	if dir == "" {
		return nil, nil
	}
	unnamed := fmt.Sprintf("%s-%d", filepath.Base(os.Args[0]), os.Getpid())
	return Create(dir, cmp.Or(os.Getenv(envWorker), unnamed))
}

// Write appends an event with one write(2). If it has no time or worker, it gets the current time
// and the worker of w. After a kill, the last line may be incomplete; Read ignores it then.
func (w *Writer) Write(e Event) error {
	if w == nil {
		return nil
	}
	e.At, e.Worker = cmp.Or(e.At, Now()), cmp.Or(e.Worker, w.worker)
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = w.file.Write(append(line, '\n'))
	return err
}

// Close closes the file.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	return w.file.Close()
}
