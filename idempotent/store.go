package idempotent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

var (
	// ErrInProgress says that another caller runs the job now. The error is an *InProgressError.
	ErrInProgress = errors.New("idempotent: the job is in progress")
	// ErrMismatch says that the key was used with another payload.
	ErrMismatch = errors.New("idempotent: the key was used with another payload")
	// ErrNoResult says that the job was done, and its result was not kept, since it was
	// too long or could not be encoded.
	ErrNoResult = errors.New("idempotent: the job was done, and its result was not kept")
)

// InProgressError says who runs the job. It is an ErrInProgress.
type InProgressError struct {
	Key   string
	Host  string
	PID   int
	Until time.Time // when the run can be taken over unless it is renewed, by the clock of the records
}

// Error names the key and the process.
func (e *InProgressError) Error() string {
	return fmt.Sprintf("%v: %q by pid %d on %s", ErrInProgress, e.Key, e.PID, e.Host)
}

// Is makes errors.Is(err, ErrInProgress) true.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// FailedError is a failure that was remembered.
type FailedError struct {
	Key  string
	Text string // of the error that the function returned
}

// Error tells the key and the error of then.
func (e *FailedError) Error() string {
	return fmt.Sprintf("idempotent: %q has failed: %s", e.Key, e.Text)
}

// Codec makes bytes of results.
type Codec interface {
	Encode(value any) ([]byte, error)
	Decode(data []byte, value any) error // value is a pointer
}

// JSON is the default Codec.
type JSON struct{}

// Encode returns the JSON of value.
func (JSON) Encode(value any) ([]byte, error) { return json.Marshal(value) }

// Decode reads JSON.
func (JSON) Decode(data []byte, value any) error { return json.Unmarshal(data, value) }

// Config tunes a Store. The zero value is useful.
type Config struct {
	// Lease is how long a run that vanished keeps others out. It is renewed at a third
	// of it. At least 100 ms; 0 means the default, 30 s.
	Lease time.Duration

	// Retention is how long the outcome of a run is kept; a key that is used later is
	// new. At least two seconds, or whoever waits could miss it between two looks; 0 means
	// the default, 24 h.
	Retention time.Duration

	// MaxResult is how many bytes an encoded result may have to be kept; of one that is
	// longer later callers get ErrNoResult. 0 means the default, 64 KiB; more than
	// 256 KiB, half of the longest record, is ErrInvalid.
	MaxResult int

	// Remember reports whether a failure is the outcome of its key. nil, the default,
	// remembers none: the next caller runs the job again.
	Remember func(error) bool

	// Codec encodes results. nil, the default, is JSON.
	Codec Codec
}

// Options are what one use of a Store asks for; see [Store.With].
type Options struct {
	// Payload is what the job depends on; its SHA-256 is stored. nil, the default, is
	// no payload, which matches no other.
	Payload []byte

	// Wait bounds how long Do waits while another caller runs the job. 0, the default,
	// is as long as the context allows.
	Wait time.Duration

	// NoWait makes Do return ErrInProgress while another caller runs the job. The
	// default waits for the outcome.
	NoWait bool
}

const (
	defaultLease     = 30 * time.Second
	minLease         = 100 * time.Millisecond
	minRetention     = 2 * lastLook
	defaultRetention = 24 * time.Hour
	defaultMaxResult = 64 << 10
	mostResult       = driver.MaxRecord / 2
)

// keyPrefix begins the keys of the records.
const keyPrefix = "idempotent/"

// Store does jobs once. It is safe for concurrent use and needs no closing.
type Store struct {
	records     driver.Records
	cfg         Config
	opts        Options
	fingerprint string
}

// New returns a Store on the records of an engine, such as engine.Records(). It does no
// I/O; cfg may be nil.
func New(records fencelock.Records, cfg *Config) *Store {
	s := &Store{records: records}
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Lease = cmp.Or(s.cfg.Lease, defaultLease)
	s.cfg.Retention = cmp.Or(s.cfg.Retention, defaultRetention)
	s.cfg.MaxResult = cmp.Or(s.cfg.MaxResult, defaultMaxResult)
	if s.cfg.Codec == nil {
		s.cfg.Codec = JSON{}
	}
	return s
}

// With returns a Store on the same records for jobs with the options o.
func (s *Store) With(o Options) *Store {
	out := *s
	out.opts, out.fingerprint = o, ""
	if o.Payload != nil {
		sum := sha256.Sum256(o.Payload)
		out.fingerprint = hex.EncodeToString(sum[:])
	}
	return &out
}

// check returns an ErrInvalid for a key or times that make no sense.
func (s *Store) check(key string) error {
	if err := driver.CheckName(key); err != nil {
		return err
	}
	switch {
	case len(keyPrefix)+len(key) > 512:
		return fmt.Errorf("%w: the key has %d bytes, more than %d", driver.ErrInvalid, len(key), 512-len(keyPrefix))
	case s.cfg.Lease < minLease || s.cfg.Lease > driver.MaxDuration/2:
		return fmt.Errorf("%w: the lease %v is shorter than %v or longer than five years", driver.ErrInvalid, s.cfg.Lease, minLease)
	case s.cfg.Retention < minRetention || s.cfg.Retention > driver.MaxDuration/2:
		return fmt.Errorf("%w: the retention %v is shorter than %v or longer than five years", driver.ErrInvalid, s.cfg.Retention, minRetention)
	case s.opts.Wait < 0:
		return fmt.Errorf("%w: the wait limit %v is negative", driver.ErrInvalid, s.opts.Wait)
	case s.cfg.MaxResult < 0 || s.cfg.MaxResult > mostResult:
		return fmt.Errorf("%w: results of %d bytes are too long for a record; %d is the most", driver.ErrInvalid, s.cfg.MaxResult, mostResult)
	}
	return nil
}

// The states of a job; one without a record is absent.
const (
	running  = "running"
	done     = "done"
	noResult = "no result" // done, and nothing is kept of it
	failed   = "failed"    // for good
	open     = "open"      // the last run failed, and the next caller runs
)

// state is what a record says about a job: one line of JSON, and the result behind it.
type state struct {
	State       string `json:"state"`
	Owner       string `json:"owner"` // of the last run, unique
	Token       int64  `json:"token"` // of the last run
	Until       int64  `json:"until,omitempty"`
	Lease       int64  `json:"lease,omitempty"` // as Until, in microseconds; 0 in records of before
	Fingerprint string `json:"payload,omitempty"`
	Host        string `json:"host,omitempty"`
	PID         int    `json:"pid,omitempty"`
	Error       string `json:"error,omitempty"`

	result  []byte
	version string // of the record; empty if there is none
}

func (st state) encode() []byte {
	b, err := json.Marshal(st)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return append(append(b, '\n'), st.result...)
}

// look reads the state of a job.
func (s *Store) look(ctx context.Context, key string) (state, error) {
	rec, err := s.records.Get(ctx, keyPrefix+key)
	if err != nil || rec.Version == "" {
		return state{}, err
	}
	st := state{version: rec.Version}
	head, result, _ := bytes.Cut(rec.Value, []byte("\n"))
	if err := json.Unmarshal(head, &st); err != nil {
		return state{}, fmt.Errorf("%w: the record of %q is not of this package: %w", driver.ErrInvalid, keyPrefix+key, err)
	}
	st.result = result
	switch st.State {
	case running, done, noResult, failed, open:
		return st, nil
	}
	return state{}, fmt.Errorf("%w: the record of %q is of another version of this package: its state is %q", driver.ErrInvalid, keyPrefix+key, st.State)
}
