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
	bucket   string
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
	return &Records{js: js, bucket: bucket, replicas: cmp.Or(cfg.Replicas, 1), limit: cmp.Or(cfg.Timeout, 5*time.Second)}
}

// Get implements driver.Records. The leader of the stream answers. A server that was the leader before
// may answer, too: an answer that is older than one before it is asked for again, for a second.
func (r *Records) Get(ctx context.Context, key string) (rec driver.Record, err error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	err = r.call(ctx, func(ctx context.Context, b *bucket) error {
		rec, _, err = b.read(ctx, key)
		return err
	})
	return rec, err
}

// Swap implements driver.Records. The TTL is rounded up to seconds.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (next string, err error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	err = r.call(ctx, func(ctx context.Context, b *bucket) error {
		last, err := strconv.ParseUint(cmp.Or(version, "0"), 10, 64)
		if err != nil || (last == 0) != (version == "") {
			return driver.ErrConflict
		}
		for {
			next, err = b.put(ctx, key, value, last, ttl)
			if version != "" || err == nil || !errors.Is(failure(err), driver.ErrConflict) {
				return err
			}
			// There may be a marker of a record that has expired or was deleted.
			var rec driver.Record
			if rec, last, err = b.read(ctx, key); err != nil {
				return err
			}
			if rec.Version != "" {
				return driver.ErrConflict
			}
		}
	})
	return next, err
}

// List implements driver.Records. It reads the whole bucket, from a server that may be behind the
// leader for a moment.
func (r *Records) List(ctx context.Context, prefix string) (list []driver.Record, err error) {
	err = r.call(ctx, func(ctx context.Context, b *bucket) error {
		list, err = b.list(ctx, prefix)
		return err
	})
	return list, err
}

// Clock implements driver.Records with the clock of the stream's leader.
func (r *Records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	err = r.call(ctx, func(ctx context.Context, b *bucket) error {
		info, err := b.stream.Info(ctx)
		if err == nil {
			earliest = info.TimeStamp
		}
		return err
	})
	return earliest, earliest, err
}

// Await implements driver.Awaiter with an ephemeral consumer, which begins with the current record.
func (r *Records) Await(ctx context.Context, key, version string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch
	var w jetstream.KeyWatcher
	err := r.call(ctx, func(limited context.Context, b *bucket) (err error) {
		defer context.AfterFunc(limited, cancel)()
		w, err = b.kv.Watch(watching, encode(key))
		return err
	})
	if err != nil {
		return driver.Record{}, err
	}
	for got, rec := false, (driver.Record{}); ; {
		entry, open := <-w.Updates()
		switch {
		case ctx.Err() != nil:
			return driver.Record{}, ctx.Err()
		case !open:
			return driver.Record{}, failure(errors.New("the watch has ended"))
		case entry == nil && got: // the end of what was there
		case entry == nil: // nothing was there, at a server that may be behind the leader
			if rec, err = r.Get(ctx, key); err != nil {
				return driver.Record{}, cmp.Or(ctx.Err(), err)
			}
		case !r.seen.pass(key, entry.Revision(), false):
			continue
		default:
			got, rec = true, recordOf(key, entry)
		}
		if rec.Version != version {
			return rec, nil
		}
	}
}

// call makes one request, and checks the bucket before the first one.
func (r *Records) call(ctx context.Context, request func(context.Context, *bucket) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	b, err := r.open(ctx)
	if err == nil {
		err = request(ctx, b)
	}
	if err != nil {
		return failure(err)
	}
	return nil
}

// failure converts an error of the client.
func failure(err error) error {
	kind, hint := driver.ErrUnavailable, ""
	switch refusal, _ := errors.AsType[*jetstream.APIError](err); {
	case errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrConfig):
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
