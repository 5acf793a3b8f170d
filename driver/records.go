package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Records keeps records: small values under keys, each of which changes only from
// the version that its writer has seen. Whatever can replace a value on a condition
// can be one, a server of locks, a table or an object store. All methods may be
// called from many goroutines at once.
//
// Keys obey the rules of names ([CheckName]) and have nothing to do with locks: a lock
// and a record of one name do not meet. Every method returns the error of a ctx that
// has ended before, and then nothing is sent. A method that fails with ErrUnavailable
// had no answer in time.
type Records interface {
	// Get returns the record of key as it stands. One that was never written, or has
	// expired, has no Version. The value is the caller's to change.
	Get(ctx context.Context, key string) (Record, error)

	// Swap makes value the record of key if its version is still version, "" if there
	// must be no record, and returns the new version, which the key has never had
	// before, not even before it expired. The record expires after ttl, by the
	// store's own clock and never earlier; 0 keeps it for ever.
	//
	// ErrConflict: the record has another version, or has expired; nothing has
	// changed. ErrUnavailable: nobody knows whether it has changed, or may still
	// change; it can only change from version. Any other error: nothing has changed.
	// What Swap has reported survives a restart as far as the engine's tokens do.
	Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error)

	// List returns the records whose keys have a prefix, ordered by key. It may look
	// through all that the engine stores: it is for people, and for rare occasions.
	List(ctx context.Context, prefix string) ([]Record, error)

	// Clock returns bounds of what the store's clock showed at some moment of the
	// call; they are the same where that is known exactly. It is the clock by which
	// records expire, one for all clients; somebody may set it, as any clock.
	Clock(ctx context.Context) (earliest, latest time.Time, err error)
}

// Record is one record of Records.
type Record struct {
	Key     string
	Value   []byte
	Version string // what Swap wants to hear; empty if there is no record
}

// RecordKeeper is an engine that keeps records too.
type RecordKeeper interface {
	// Records returns the engine's records. It does no I/O, and all that it returns
	// are the same.
	Records() Records
}

// ErrConflict says that a record has changed since its version was read.
var ErrConflict = errors.New("the record has changed")

// MaxRecord is the longest value of a record in bytes.
const MaxRecord = 512 << 10

// CheckSwap returns an ErrInvalid that says what is wrong with what is to be stored,
// or nil. Every Records calls it before any I/O.
func CheckSwap(key string, value []byte, ttl time.Duration) error {
	if err := CheckName(key); err != nil {
		return err
	}
	switch {
	case len(value) > MaxRecord:
		return fmt.Errorf("%w: the value has %d bytes, more than %d", ErrInvalid, len(value), MaxRecord)
	case ttl < 0:
		return fmt.Errorf("%w: the TTL %v is negative", ErrInvalid, ttl)
	case ttl > MaxDuration:
		return fmt.Errorf("%w: the TTL %v is longer than ten years", ErrInvalid, ttl)
	}
	return nil
}
