package idempotent

import (
	"cmp"
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

// InProgressError says who runs the job. It is an ErrInProgress, and wraps the
// *fencelock.HeldError of the run's lock.
type InProgressError struct {
	Key  string
	Held *fencelock.HeldError
}

// Error names the key and the process.
func (e *InProgressError) Error() string {
	return fmt.Sprintf("%v: %q by pid %d on %s", ErrInProgress, e.Key, e.Held.PID, e.Held.Host)
}

// Is makes errors.Is(err, ErrInProgress) true.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// Unwrap returns Held.
func (e *InProgressError) Unwrap() error { return e.Held }

// DoneError says that the job is over, and carries its outcome. It wraps Err.
type DoneError struct {
	Key    string
	Result []byte    // as it was stored, by the [Codec] or by [Run.Complete]
	Err    error     // nil, an ErrNoResult, or the *FailedError of a failure that was remembered
	Host   string    // of the process that ran the job
	PID    int       // of that
	Ended  time.Time // by the clock of Host
}

// Error names the key, and says what became of the job.
func (e *DoneError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("idempotent: %q is done", e.Key)
}

// Unwrap returns Err.
func (e *DoneError) Unwrap() error { return e.Err }

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
	// Retention is how long the outcome of a run is kept; a key that is used later is
	// new. At least a second; 0 means the default, 24 h.
	Retention time.Duration

	// MaxResult is how many bytes an encoded result may have to be kept; of one that is
	// longer later callers get ErrNoResult. 0 means the default, 64 KiB; more than
	// 508 KiB, the longest record without its head, is ErrInvalid.
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

	// Wait bounds how long a caller waits while another one runs the job. 0, the
	// default, is as long as the context allows.
	Wait time.Duration

	// NoWait makes Do and Begin return an *InProgressError while another caller runs the
	// job. The default waits for the outcome.
	NoWait bool

	// Again reports whether a job that is over is run again, such as one whose failure
	// was remembered. It is asked several times for one use, and must be safe for concurrent
	// use. nil, the default, runs none again.
	Again func(*DoneError) bool
}

const (
	minRetention     = time.Second
	defaultRetention = 24 * time.Hour
	defaultMaxResult = 64 << 10
	mostResult       = driver.MaxRecord - 4<<10 // beside the result stands a line about it
)

// Store does jobs once. It is safe for concurrent use and needs no closing.
type Store struct {
	locks       *fencelock.Locker
	readers     *fencelock.Locker // for shared locks
	records     driver.Records
	cfg         Config
	opts        Options
	fingerprint string // of the payload
	flights     *flights
}

// New returns a Store whose runs hold locks of locks, and whose outcomes are kept in
// records: those of the same engine, such as engine.Records(), or of another one if that keeps none
// (Redlock). All who use a key must use the same pair, since the tokens of the locks are
// compared in the records.
//
// The TTL, the grace, the note and OnWait of locks count, and no other of its options.
// New does no I/O; cfg may be nil.
func New(locks *fencelock.Locker, records fencelock.Records, cfg *Config) *Store {
	o := locks.Options()
	o = fencelock.Options{TTL: o.TTL, Grace: o.Grace, Note: o.Note, OnWait: o.OnWait}
	s := &Store{locks: locks.WithOnly(o), records: records, flights: &flights{all: map[string]*flight{}}}
	s.readers = s.locks.With(fencelock.Options{Shared: true})
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Retention = cmp.Or(s.cfg.Retention, defaultRetention)
	s.cfg.MaxResult = cmp.Or(s.cfg.MaxResult, defaultMaxResult)
	if s.cfg.Codec == nil {
		s.cfg.Codec = JSON{}
	}
	return s
}

// With returns a Store on the same locks and records for jobs with the options o. A zero
// field of o leaves what s has.
func (s *Store) With(o Options) *Store {
	out := *s
	if o.Payload != nil {
		sum := sha256.Sum256(o.Payload)
		out.opts.Payload, out.fingerprint = o.Payload, hex.EncodeToString(sum[:])
	}
	out.opts.Wait, out.opts.NoWait = cmp.Or(o.Wait, s.opts.Wait), o.NoWait || s.opts.NoWait
	if o.Again != nil {
		out.opts.Again = o.Again
	}
	return &out
}

// check returns an ErrInvalid for a key or settings that make no sense.
func (s *Store) check(key string) error {
	if err := driver.CheckName(key); err != nil {
		return err
	}
	switch {
	case len(keyPrefix)+len(key) > 512:
		return fmt.Errorf("%w: the key has %d bytes, more than %d", driver.ErrInvalid, len(key), 512-len(keyPrefix))
	case s.cfg.Retention < minRetention || s.cfg.Retention > driver.MaxDuration:
		return fmt.Errorf("%w: the retention %v is shorter than %v or longer than ten years", driver.ErrInvalid, s.cfg.Retention, minRetention)
	case s.opts.Wait < 0:
		return fmt.Errorf("%w: the wait limit %v is negative", driver.ErrInvalid, s.opts.Wait)
	case s.cfg.MaxResult < 0 || s.cfg.MaxResult > mostResult:
		return fmt.Errorf("%w: results of %d bytes are too long for a record; %d is the most", driver.ErrInvalid, s.cfg.MaxResult, mostResult)
	}
	return nil
}
