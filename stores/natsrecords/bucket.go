package natsrecords

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver"
)

// bucket is a bucket that exists and is fit for records.
type bucket struct {
	*Records
	stream  jetstream.Stream
	kv      jetstream.KeyValue
	subject string // of the key "", for writes
}

// markerLife is how long a message remains that says that a record has expired. Watches need it.
const markerLife = 10 * time.Minute

// Init creates the bucket, or checks one that exists. The bucket has a history of 1, and its other
// settings have reasons: a time limit for all records would remove the record of a lock in use, and
// with direct reads a replica may return an old version.
func (r *Records) Init(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	_, err := r.js.CreateStream(limited, jetstream.StreamConfig{
		Name: "KV_" + r.name, Subjects: []string{"$KV." + r.name + ".>"}, Description: "records of fencelock",
		MaxMsgsPerSubject: 1, MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1, Discard: jetstream.DiscardNew,
		Storage: jetstream.FileStorage, Replicas: r.replicas, AllowRollup: true, DenyDelete: true,
		AllowMsgTTL: true, SubjectDeleteMarkerTTL: markerLife, FirstSeq: uint64(time.Now().UnixMicro()),
	})
	if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		_, err = r.open(limited)
	}
	return failure(err)
}

// open returns the bucket. It checks it once.
func (r *Records) open(ctx context.Context) (*bucket, error) {
	if b := r.opened.Load(); b != nil {
		return b, nil
	}
	kv, err := r.js.KeyValue(ctx, r.name)
	if err != nil {
		return nil, err
	}
	stream, err := r.js.Stream(ctx, "KV_"+r.name)
	if err != nil {
		return nil, err
	}
	if wrong := unfit(stream.CachedInfo().Config); wrong != "" {
		return nil, fmt.Errorf("%w: the bucket %q %s; Init creates one that fits", driver.ErrConfig, r.name, wrong)
	}
	b := &bucket{r, stream, kv, "$KV." + r.name + "."}
	switch with := r.js.Options(); {
	case with.Domain != "":
		b.subject = "$JS." + with.Domain + ".API." + b.subject
	case with.APIPrefix != "":
		b.subject = strings.TrimSuffix(with.APIPrefix, ".") + "." + b.subject
	}
	r.opened.Store(b)
	return b, nil
}

// unfit returns which settings of a bucket lose records, or that it has no TTLs. It returns "" if the
// bucket is fit.
func unfit(c jetstream.StreamConfig) string {
	switch {
	case c.MaxAge != 0:
		return "has a TTL for all records (max age): set it to 0"
	case c.Storage != jetstream.FileStorage:
		return "is stored in memory, which a restart loses"
	case c.Mirror != nil || len(c.Sources) > 0:
		return "copies another one"
	case c.Discard != jetstream.DiscardNew:
		return "discards old records if it is full"
	case !c.AllowMsgTTL || c.SubjectDeleteMarkerTTL == 0:
		return "has no TTLs of messages, or no markers of those that have expired"
	case c.AllowDirect:
		return "allows direct reads, which may be old"
	}
	return ""
}

// put stores a value if the last message of the key has a sequence number, which is 0 if there is
// none.
func (b *bucket) put(ctx context.Context, key string, value []byte, last uint64, ttl time.Duration) (version string, err error) {
	with := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(last)}
	if ttl > 0 {
		with = append(with, jetstream.WithMsgTTL((ttl + time.Second - 1).Truncate(time.Second)))
	}
	ack, err := b.js.Publish(ctx, b.subject+encode(key), value, with...)
	if err != nil {
		return "", err
	}
	b.seen.pass(key, ack.Sequence, false)
	return versionOf(ack.Sequence), nil
}

// read returns a record and the sequence number of the last message of its key: of the record, of a
// marker that there is none, or 0. An old answer is asked for again for a second.
func (b *bucket) read(ctx context.Context, key string) (rec driver.Record, last uint64, err error) {
	for begun := time.Now(); ; {
		rec = driver.Record{Key: key}
		msg, err := b.stream.GetLastMsgForSubject(ctx, "$KV."+b.name+"."+encode(key))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			msg = &jetstream.RawStreamMsg{}
		case err != nil:
			return rec, 0, err
		case msg.Header.Get("KV-Operation") == "" && msg.Header.Get(jetstream.MarkerReasonHeader) == "":
			rec.Value, rec.Version = msg.Data, versionOf(msg.Sequence)
		}
		if b.seen.pass(key, msg.Sequence, time.Since(begun) > time.Second) || !pause(ctx) {
			return rec, msg.Sequence, nil
		}
	}
}

// pause waits for 10 to 50 ms, or until ctx ends. It reports whether ctx has not ended.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(10*time.Millisecond + rand.N(40*time.Millisecond)):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// list returns the records whose keys have a prefix.
func (b *bucket) list(ctx context.Context, prefix string) (list []driver.Record, err error) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch
	w, err := b.kv.WatchAll(watching, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	for entry := range w.Updates() {
		if entry == nil { // the end of what is there
			slices.SortStableFunc(list, func(a, b driver.Record) int { return strings.Compare(a.Key, b.Key) })
			return list, nil
		}
		if key, ok := decode(entry.Key()); ok && strings.HasPrefix(key, prefix) {
			list = append(list, driver.Record{Key: key, Value: entry.Value(), Version: versionOf(entry.Revision())})
		}
	}
	return nil, errors.Join(errors.New("the list is incomplete"), ctx.Err())
}

func versionOf(sequence uint64) string { return strconv.FormatUint(sequence, 10) }

// plain makes a key for NATS, which must not contain ".", of one in a URL. "=" has a meaning then.
var plain = strings.NewReplacer("%2F", "/", "%", "=", "+", "=20", ".", "=2E", "~", "=7E")

// encode returns the key of a record in the bucket.
func encode(key string) string { return plain.Replace(url.QueryEscape(key)) }

// decode reverses encode. It reports whether encode has made the text.
func decode(text string) (key string, ok bool) {
	key, err := url.PathUnescape(strings.ReplaceAll(text, "=", "%"))
	return key, err == nil && encode(key) == text
}
