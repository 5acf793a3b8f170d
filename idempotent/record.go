package idempotent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// keyPrefix begins the names of the locks and the keys of the records.
const keyPrefix = "idempotent/"

// The states of a key; one without a record is new.
const (
	running  = "running" // or lost, or failed: whoever has the lock may run the job
	done     = "done"
	noResult = "no result" // done, and nothing is kept of it
	failed   = "failed"    // and that was remembered
)

// record is what is stored of a key: one line of JSON, and the result behind it.
type record struct {
	State   string    `json:"state"`
	Owner   string    `json:"owner"`             // of the lock, unique to the run
	Token   int64     `json:"token"`             // of the lock
	Payload string    `json:"payload,omitempty"` // its SHA-256
	Host    string    `json:"host"`              // of the run, with its PID
	PID     int       `json:"pid"`
	Ended   time.Time `json:"ended,omitzero"` // by the clock of Host
	Error   string    `json:"error,omitempty"`

	result  []byte
	version string // of the record; empty if there is none
}

func (r record) encode() []byte {
	head, err := json.Marshal(r)
	if err != nil {
		panic(err) // texts, numbers and times always marshal
	}
	return bytes.Join([][]byte{head, r.result}, []byte{'\n'})
}

// outcome says how the job of a key has ended.
func (r record) outcome(key string) *DoneError {
	d := &DoneError{Key: key, Result: bytes.Clone(r.result), Host: r.Host, PID: r.PID, Ended: r.Ended}
	switch r.State {
	case failed:
		d.Err = &FailedError{Key: key, Text: r.Error}
	case noResult:
		d.Err = fmt.Errorf("%w: %q", ErrNoResult, key)
	}
	return d
}

// look reads the record of a key.
func (s *Store) look(ctx context.Context, key string) (record, error) {
	stored, err := s.records.Get(ctx, keyPrefix+key)
	if err != nil || stored.Version == "" {
		return record{}, err
	}
	r := record{version: stored.Version}
	head, result, _ := bytes.Cut(stored.Value, []byte("\n"))
	if err := json.Unmarshal(head, &r); err != nil {
		return record{}, fmt.Errorf("%w: the record %q was written by another program: %w", driver.ErrConfig, keyPrefix+key, err)
	}
	r.result = result
	switch r.State {
	case running, done, noResult, failed:
		return r, nil
	}
	return record{}, fmt.Errorf("%w: the record %q was written by another program: its state is %q", driver.ErrConfig, keyPrefix+key, r.State)
}

// judge returns nil if the job is to be run, a *DoneError if it is over, or ErrMismatch.
func (s *Store) judge(key string, r record) error {
	switch {
	case r.version == "":
		return nil
	case r.Payload != s.fingerprint:
		return fmt.Errorf("%w: %q, by pid %d on %s", ErrMismatch, key, r.PID, r.Host)
	case r.State == running:
		return nil
	}
	d := r.outcome(key)
	if s.opts.Again != nil && s.opts.Again(d) {
		return nil
	}
	return d
}
