package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Records stores small values under keys. A write succeeds only if the record still has the version
// that the writer has read (compare-and-swap). Any store with a conditional write can implement it:
// the server of the locks, a table or an object store. Its methods may be called concurrently.
//
// Keys follow the rules of names ([CheckName]). They are independent of locks: a lock and a record
// may have the same name. If ctx has ended before a call, a method returns the error of ctx and
// sends nothing. ErrUnavailable means that there was no answer in time.
type Records interface {
	// Get returns the current record of key. If there is none, or it has expired, Version is empty.
	// The caller may modify the value.
	Get(ctx context.Context, key string) (Record, error)

	// Swap stores value under key if the record still has the given version, or if version is ""
	// and there is no record. It returns the new version, which differs from all earlier versions
	// of the key, including those from before it expired. The record expires after ttl, by the
	// store's clock and never earlier. A ttl of 0 means never.
	//
	// ErrConflict: the record has another version, or has expired; nothing was changed.
	// ErrUnavailable: the record may have changed, or may still change, but only from the given
	// version. Any other error: nothing was changed. A successful Swap survives a restart to the
	// same degree as the engine's tokens.
	Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error)

	// List returns the records whose keys have the prefix, ordered by key. It may read everything
	// that the engine stores: use it rarely, such as to show records to people.
	List(ctx context.Context, prefix string) ([]Record, error)

	// Clock returns bounds of the store's clock at some moment during the call. They are equal if
	// the time is known exactly. Records expire by this clock. It is the same for all clients. It
	// can be set, like any clock. ErrUnsupported means that clients cannot read the store's clock.
	Clock(ctx context.Context) (earliest, latest time.Time, err error)
}

// Record is one record of Records.
type Record struct {
	Key     string
	Value   []byte
	Version string // to be given to Swap; empty if there is no record
}

// RecordKeeper is an engine that also stores records.
type RecordKeeper interface {
	// Records returns the engine's records. It does no I/O. All calls return the same records.
	Records() Records
}

// ErrConflict means that a record has changed since its version was read.
var ErrConflict = errors.New("the record has changed")

// MaxRecord is the maximum length of a record's value in bytes.
const MaxRecord = 512 << 10

// CheckSwap returns an ErrInvalid that says what is wrong with the arguments of a Swap, or nil.
// Every Records calls it before any I/O.
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
