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
	// ErrInProgress means that another caller is running the job. The error is an *InProgressError.
	ErrInProgress = errors.New("idempotent: the job is in progress")
	// ErrMismatch means that the key was used with another payload.
	ErrMismatch = errors.New("idempotent: the key was used with another payload")
	// ErrNoResult means that the job was done, but its result was not stored, because it was too
	// long or could not be encoded.
	ErrNoResult = errors.New("idempotent: the job was done, but its result was not stored")
)

// InProgressError says who runs the job. It is an ErrInProgress and wraps the *fencelock.HeldError
// of the lock.
type InProgressError struct {
	Key  string
	Held *fencelock.HeldError
}

// Error returns the key and the process.
func (e *InProgressError) Error() string {
	return fmt.Sprintf("%v: %q by pid %d on %s", ErrInProgress, e.Key, e.Held.PID, e.Held.Host)
}

// Is makes errors.Is(err, ErrInProgress) true.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// Unwrap returns Held.
func (e *InProgressError) Unwrap() error { return e.Held }

// DoneError means that the job is over, and has its outcome. It wraps Err.
type DoneError struct {
	Key    string
	Result []byte    // as stored by the [Codec] or by [Run.Complete]
	Err    error     // nil, ErrNoResult, or the *FailedError of a stored failure
	Host   string    // the host of the process that ran the job
	PID    int       // its process ID
	Ended  time.Time // by the clock of Host
}

// Error returns the key and what became of the job.
func (e *DoneError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("idempotent: %q is done", e.Key)
}

// Unwrap returns Err.
func (e *DoneError) Unwrap() error { return e.Err }

// FailedError is a stored failure; see Config.Remember.
type FailedError struct {
	Key  string
	Text string // the text of the error that the function returned
}

// Error returns the key and the stored error.
func (e *FailedError) Error() string {
	return fmt.Sprintf("idempotent: %q has failed: %s", e.Key, e.Text)
}

// Codec encodes results for storage.
type Codec interface {
	Encode(value any) ([]byte, error)
	Decode(data []byte, value any) error // value is a pointer
}

// jsonCodec is the default Codec.
type jsonCodec struct{}

func (jsonCodec) Encode(value any) ([]byte, error)    { return json.Marshal(value) }
func (jsonCodec) Decode(data []byte, value any) error { return json.Unmarshal(data, value) }

// Config holds the settings of a Store. The zero value is ready to use.
type Config struct {
	// Retention is how long an outcome is stored. After that the key is new. The minimum is one
	// second. 0 means the default, 24 h.
	Retention time.Duration

	// MaxResult is the maximum size of a stored result in bytes. If a result is longer, later
	// callers get ErrNoResult. 0 means the default, 64 KiB. The maximum is 508 KiB; more is
	// ErrInvalid.
	MaxResult int

	// Remember reports whether an error is stored as the outcome of its key. nil, the default,
	// stores none: the next caller runs the job again.
	Remember func(error) bool

	// Codec encodes results. nil, the default, means JSON.
	Codec Codec
}

// Options are the settings of single calls; see [Store.With].
type Options struct {
	// Payload is the input of the job; its SHA-256 is stored. nil, the default, means no payload.
	// It differs from every other payload.
	Payload []byte

	// Wait bounds how long a caller waits while another one runs the job. 0, the default, means as
	// long as the context allows.
	Wait time.Duration

	// NoWait makes Do and Begin return an *InProgressError while another caller runs the job,
	// instead of waiting for its outcome.
	NoWait bool

	// Again reports whether to run a job again that is over, such as one with a stored failure. It
	// may be called several times per call of Do, and must be safe for concurrent use. nil, the
	// default, means never.
	Again func(*DoneError) bool
}

const (
	minRetention     = time.Second
	defaultRetention = 24 * time.Hour
	defaultMaxResult = 64 << 10
	mostResult       = driver.MaxRecord - 4<<10 // the rest of the record is the line before the result
)

// Store runs jobs once per key. It is safe for concurrent use and need not be closed.
type Store struct {
	locks       *fencelock.Locker
	readers     *fencelock.Locker // for shared locks
	records     driver.Records
	cfg         Config
	opts        Options
	fingerprint string // of the payload
	flights     *flights
}

// New returns a Store. Its runs hold locks of the given Locker, and its outcomes are stored in
// records: those of the same engine, such as engine.Records(), or of another engine if that has
// none (Redlock). All users of a key must use the same two engines, because the records compare the
// tokens of the locks.
//
// Runs use the TTL, the grace, the note, the kind and OnWait of locks; other options are ignored. New does no
// I/O. cfg may be nil.
func New(locks *fencelock.Locker, records fencelock.Records, cfg *Config) *Store {
	o := locks.Options()
	o = fencelock.Options{TTL: o.TTL, Grace: o.Grace, Note: o.Note, Kind: o.Kind, OnWait: o.OnWait}
	s := &Store{locks: locks.WithOnly(o), records: records, flights: &flights{all: map[string]*flight{}}}
	s.readers = s.locks.With(fencelock.Options{Shared: true})
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Retention = cmp.Or(s.cfg.Retention, defaultRetention)
	s.cfg.MaxResult = cmp.Or(s.cfg.MaxResult, defaultMaxResult)
	if s.cfg.Codec == nil {
		s.cfg.Codec = jsonCodec{}
	}
	return s
}

// With returns a Store for calls with the options o, on the same locks and records. Zero fields of
// o keep the values of s.
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

// check returns an ErrInvalid for an invalid key or setting.
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
		return fmt.Errorf("%w: MaxResult %d must be between 0 and %d", driver.ErrInvalid, s.cfg.MaxResult, mostResult)
	}
	return nil
}
