package idempotent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// keyPrefix is the prefix of lock names and record keys.
const keyPrefix = "idempotent/"

// The states of a key. A key without a record is new.
const (
	running  = "running" // or lost or failed: the next holder of the lock may run the job
	done     = "done"
	noResult = "no result" // done, without a stored result
	failed   = "failed"    // failed, and Config.Remember stored that
)

// record is the stored record of a key: one line of JSON, followed by the result.
type record struct {
	State   string    `json:"state"`
	Owner   string    `json:"owner"`             // the owner of the lock, unique to the run
	Token   int64     `json:"token"`             // the token of the lock
	Payload string    `json:"payload,omitempty"` // the SHA-256 of the payload
	Host    string    `json:"host"`              // the host of the run
	PID     int       `json:"pid"`
	Ended   time.Time `json:"ended,omitzero"` // by the clock of Host
	Error   string    `json:"error,omitempty"`

	result  []byte
	version string // the version of the record; empty if there is none
}

func (r record) encode() []byte {
	head, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, numbers and times always marshal
	}
	return bytes.Join([][]byte{head, r.result}, []byte{'\n'})
}

// outcome returns the outcome of a job.
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

// judge returns nil if the job must be run, a *DoneError if it is over, or ErrMismatch.
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
