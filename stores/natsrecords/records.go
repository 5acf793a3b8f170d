// Package natsrecords stores records ([driver.Records]) in a key-value bucket of NATS JetStream 2.11
// or later. Package recordlock makes locks of them, and packages such as idempotent and optimistic
// use them as they are:
//
//	js, err := jetstream.New(conn) // conn is a *nats.Conn
//	if err != nil {
//		return err
//	}
//	records := natsrecords.New(js, "locks", &natsrecords.Config{Replicas: 3})
//	if err := records.Init(ctx); err != nil { // creates the bucket, or checks it
//		return err
//	}
//	locks := fencelock.New(recordlock.New(records, nil), nil)
//
// The application owns the connection, and closes it.
//
// A record is a key of the bucket; other characters than letters, digits, "-", "_" and "/" are
// written as =XX. Its version is its revision, which is a sequence number of the bucket's stream. A
// Swap is one message that the server stores if the last one of its key has the expected sequence
// number. Init creates the stream with a first sequence number from the clock, so that versions do
// not return if the bucket is deleted and created again.
//
// A TTL is that of the message, in whole seconds. Records expire by the server's clock, and Clock
// reads it.
package natsrecords

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver"
)

// Config holds the settings of Records.
type Config struct {
	// Replicas is the number of servers that store the bucket which Init creates. 0 means 1.
	Replicas int

	// Timeout limits each request. 0 means 5 seconds.
	Timeout time.Duration
}

// Records stores records in a bucket. It is safe for concurrent use.
type Records struct {
	js       jetstream.JetStream
	name     string // of the bucket
	replicas int
	limit    time.Duration
	opened   atomic.Pointer[bucket] // nil until the bucket has been checked
	seen     marks
}

var _ driver.Awaiter = (*Records)(nil)

// New returns the records of a bucket; cfg may be nil. It does no I/O.
func New(js jetstream.JetStream, bucket string, cfg *Config) *Records {
	if cfg == nil {
		cfg = &Config{}
	}
	return &Records{js: js, name: bucket, replicas: cmp.Or(cfg.Replicas, 1), limit: cmp.Or(cfg.Timeout, 5*time.Second)}
}

// Get implements driver.Records. The leader of the stream answers. A server that was the leader before
// may answer, too: an answer that is older than one before it is asked for again, for a second.
func (r *Records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	return call(ctx, r, func(ctx context.Context, b *bucket) (driver.Record, error) {
		rec, _, err := b.read(ctx, key)
		return rec, err
	})
}

// Swap implements driver.Records. The TTL is rounded up to seconds.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	return call(ctx, r, func(ctx context.Context, b *bucket) (string, error) {
		last, err := strconv.ParseUint(cmp.Or(version, "0"), 10, 64)
		if err != nil || (last == 0) != (version == "") {
			return "", driver.ErrConflict
		}
		next, err := b.put(ctx, key, value, last, ttl)
		for version == "" && errors.Is(failure(err), driver.ErrConflict) {
			// There may be a marker of a record that has expired or was deleted.
			rec, last, failed := b.read(ctx, key)
			if failed != nil || rec.Version != "" {
				return "", cmp.Or(failed, err)
			}
			next, err = b.put(ctx, key, value, last, ttl)
		}
		return next, err
	})
}

// List implements driver.Records. It reads the whole bucket, from a server that may be behind the
// leader for a moment.
func (r *Records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	return call(ctx, r, func(ctx context.Context, b *bucket) ([]driver.Record, error) { return b.list(ctx, prefix) })
}

// Clock implements driver.Records with the clock of the stream's leader.
func (r *Records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	info, err := call(ctx, r, func(ctx context.Context, b *bucket) (*jetstream.StreamInfo, error) { return b.stream.Info(ctx) })
	if err != nil {
		return earliest, latest, err
	}
	return info.TimeStamp, info.TimeStamp, nil
}

// Await implements driver.Awaiter. An ephemeral consumer reports the last change of the key, if there
// was one, and those to come. It may be on a server that is behind the leader.
func (r *Records) Await(ctx context.Context, key, version string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch
	w, err := call(ctx, r, func(limited context.Context, b *bucket) (jetstream.KeyWatcher, error) {
		defer context.AfterFunc(limited, cancel)()
		return b.kv.Watch(watching, encode(key))
	})
	if err != nil {
		return driver.Record{}, err
	}
	for entry := range w.Updates() {
		rec := driver.Record{Key: key}
		switch {
		case entry == nil: // the end of what was there
			rec, err = r.Get(ctx, key)
		case !r.seen.pass(key, entry.Revision(), false):
			continue
		case entry.Operation() == jetstream.KeyValuePut:
			rec.Value, rec.Version = entry.Value(), versionOf(entry.Revision())
		}
		if err != nil || rec.Version != version {
			return rec, cmp.Or(ctx.Err(), err)
		}
	}
	return driver.Record{}, cmp.Or(ctx.Err(), failure(errors.New("the watch has ended")))
}

// call makes one request, and checks the bucket before the first one.
func call[T any](ctx context.Context, r *Records, request func(context.Context, *bucket) (T, error)) (result T, err error) {
	if err := ctx.Err(); err != nil {
		return result, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	b, err := r.open(ctx)
	if err == nil {
		result, err = request(ctx, b)
	}
	return result, failure(err)
}

// failure converts an error of the client.
func failure(err error) error {
	kind, hint := driver.ErrUnavailable, ""
	switch refusal, _ := errors.AsType[*jetstream.APIError](err); {
	case err == nil || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrConfig):
		return err
	case refusal != nil && (refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
		return driver.ErrConflict
	case errors.Is(err, jetstream.ErrBucketNotFound):
		kind, hint = driver.ErrConfig, " (Init creates it)"
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		kind = driver.ErrConfig
	}
	return fmt.Errorf("%w: records in NATS: %w%s", kind, err, hint)
}
