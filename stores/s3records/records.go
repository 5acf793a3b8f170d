// Package s3records stores records ([driver.Records]) as objects of S3 or of another object store
// with S3's interface and its conditional writes, If-None-Match: * and If-Match; see [New]. It also
// stores them in Azure Blob Storage ([NewAzure]) and Google Cloud Storage ([NewGoogle]), whose
// interfaces differ a little. Locks, and packages that need records, can use them:
//
//	records := s3records.New("my-bucket", &s3records.Config{Region: "eu-west-1", Prefix: "locks/"})
//	if err := records.Init(ctx); err != nil { // checks that the store obeys conditions
//		return err
//	}
//	locks := fencelock.New(recordlock.New(records, nil), nil)
//	visits := optimistic.New(records, nil)
//
// A login needs s3:GetObject and s3:PutObject on the objects with the prefix, and s3:ListBucket on
// the bucket; without the latter, S3 answers "access denied" for a missing object.
//
// Get, Clock and most calls of Swap are one request. Swap reads a record with a TTL first, and reads the
// object after a refusal. List is one request for each record and one for each thousand. An expired record remains an object until
// the next Swap of its key.
//
// The store's clock is the Date header of its answers, which has whole seconds: a record may remain
// for three seconds longer than its TTL. If an answer to a Swap is lost, the store's later answers
// decide: Swap reads the object, which contains a random text of this Swap, and tries again if the
// object has not changed.
package s3records

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/awslogin"
	"github.com/fencelock/fencelock/internal/bucket"
	"github.com/fencelock/fencelock/internal/retry"
)

// Config holds the settings of Records.
type Config struct {
	// Region is the region of the bucket. Empty means AWS_REGION, AWS_DEFAULT_REGION or us-east-1.
	Region string

	// Endpoint is the URL of a store other than Amazon's, such as https://minio.example:9000. The
	// bucket is the first segment of its paths.
	Endpoint string

	// Prefix is put before all object keys. It may contain slashes. No other objects may have it.
	Prefix string

	// Timeout limits each call, with all its attempts, each of which may take a third of it. List
	// makes many requests, and it limits each of these. 0 means 5 seconds.
	Timeout time.Duration

	// Client sends the requests. It must not repeat a PUT. Nil means a client of its own, with
	// HTTP/1.1, which leaves a connection after an attempt that had no answer.
	Client *http.Client

	// Sign signs a request whose body has this SHA-256 hash, in hexadecimal digits. Nil means the
	// login that the environment, the shared credentials file, a web identity token, the container
	// or the instance provides, in this order.
	Sign func(r *http.Request, hash string) error
}

// Records stores records in a bucket or a container. It is safe for concurrent use.
type Records struct {
	bucket *bucket.Bucket
	limit  time.Duration
}

var _ driver.Records = (*Records)(nil)

// New returns the records of a bucket. It does no I/O; the first call reports wrong settings.
func New(name string, cfg *Config) *Records {
	if cfg == nil {
		cfg = &Config{}
	}
	return open(cfg.Timeout, bucket.Config{Name: name, Region: cfg.Region, Endpoint: cfg.Endpoint, Prefix: cfg.Prefix, Client: cfg.Client, Sign: cfg.Sign})
}

// open returns the records of a bucket with a limit for each call.
func open(limit time.Duration, cfg bucket.Config) *Records {
	limit = cmp.Or(limit, 5*time.Second)
	cfg.Limit = limit / 3
	return &Records{limit: limit, bucket: bucket.New(cfg)}
}

// Get implements driver.Records.
func (r *Records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := cmp.Or(driver.CheckName(key), ctx.Err()); err != nil {
		return driver.Record{}, err
	}
	rec, _, err := r.read(ctx, key)
	return rec, r.failure(err)
}

// read returns a record, and the object that has it or an expired one.
func (r *Records) read(ctx context.Context, key string) (rec driver.Record, o bucket.Object, err error) {
	err = r.again(ctx, func(ctx context.Context) error {
		o, err = r.bucket.Get(ctx, objectKey(key))
		return err
	})
	if rec.Key = key; err != nil || o.ETag == "" {
		return rec, o, err
	}
	rec, ok := parse(o)
	if !ok || rec.Key != key {
		return driver.Record{}, o, fmt.Errorf("%w: the object of the record %q was not written by this package", driver.ErrConfig, key)
	}
	return rec, o, nil
}

// again sends a request that changes nothing, until it succeeds, a retry is useless or the time of
// a call is over.
func (r *Records) again(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	var before error
	for pause := backoff(); ; {
		err := request(ctx)
		if err != nil && before != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w; then: %w", before, err) // the one before says more
		}
		if before = err; err == nil || errors.Is(err, driver.ErrConfig) || !pause.Wait(ctx) {
			return err
		}
	}
}

func backoff() *retry.Backoff { return retry.NewBackoff(20*time.Millisecond, time.Second) }

// head begins the first line of an object. The TTL of the record, 0s for none, its key as in a URL, and
// a random text follow. The rest is the value. The random text makes the ETag, which may be a hash,
// differ from all earlier ones.
const head = "fencelock-record 2 "

// brief is the end of the version of a record with a TTL. The rest of all versions is the ETag.
const brief = " ttl"

// late is how much longer than its TTL a record remains at least, by the difference of two readings
// of the store's clock: they have whole seconds, and may be from two servers.
const late = 2 * time.Second

// parse returns the record of an object. An expired one has no version. It reports whether this
// package has written the object.
func parse(o bucket.Object) (rec driver.Record, ok bool) {
	line, value, _ := bytes.Cut(o.Body, []byte("\n"))
	rest, ours := strings.CutPrefix(string(line), head)
	words := strings.Fields(rest)
	if !ours || len(words) != 3 {
		return rec, false
	}
	rec.Key, _ = url.PathUnescape(words[1])
	switch ttl, err := time.ParseDuration(words[0]); {
	case err != nil:
		return rec, false
	case ttl == 0:
		rec.Value, rec.Version = value, o.ETag
	case o.Date.Sub(o.Modified) < ttl+late:
		rec.Value, rec.Version = value, o.ETag+brief
	}
	return rec, true
}

// Swap implements driver.Records. It retries failed requests. The TTL counts from the time at which
// the store writes the object.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := cmp.Or(driver.CheckSwap(key, value, ttl), ctx.Err()); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	body := append(fmt.Appendf(nil, head+"%s %s %s\n", ttl, awslogin.Escape(key, ""), rand.Text()), value...)
	etag, err := r.swap(ctx, key, body, version)
	if err == nil && ttl > 0 {
		etag += brief
	}
	return etag, r.failure(err)
}

// swap writes the object of a record that has a version. It returns the new ETag.
func (r *Records) swap(ctx context.Context, key string, body []byte, version string) (string, error) {
	etag, mayExpire := strings.CutSuffix(version, brief)
	look, again := mayExpire, false
	var unknown error // of an attempt that may have written the object, or may still write it
	for pause := backoff(); ; {
		if look {
			rec, o, err := r.read(ctx, key)
			switch {
			case err == nil && bytes.Equal(o.Body, body):
				return o.ETag, nil
			case err == nil && rec.Version == version:
				etag = o.ETag // of an expired record, if there is none
			case unknown != nil: // even if another one has written: this one may have been first
				return "", unknown
			case err == nil:
				return "", driver.ErrConflict
			default:
				return "", err
			}
		}
		next, err := r.bucket.Put(ctx, objectKey(key), body, etag)
		refused := errors.Is(err, bucket.ErrChanged)
		switch certain := refused || errors.Is(err, bucket.ErrBusy) || errors.Is(err, driver.ErrConfig); {
		case err == nil:
			return next, nil
		case !certain:
			unknown = err
		case unknown == nil && errors.Is(err, driver.ErrConfig):
			return "", err
		}
		// The first refusal may be due to an expired record, or to a proxy that has sent this write twice.
		if (again || !refused) && !pause.Wait(ctx) {
			return "", cmp.Or(unknown, err)
		}
		look, again = true, again || refused
	}
}

// readers is the maximum number of objects that List reads at the same time.
const readers = 16

// List implements driver.Records. It lists the keys and then reads each record.
func (r *Records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var list []driver.Record
	for after := ""; ; {
		var objects []string
		err := r.again(ctx, func(ctx context.Context) (err error) {
			objects, after, err = r.bucket.List(ctx, objectPrefix(prefix), after)
			return err
		})
		if err != nil {
			return nil, r.failure(err)
		}
		found, err := r.readAll(ctx, objects)
		if err != nil {
			return nil, r.failure(err)
		}
		list = append(list, found...)
		if after == "" {
			break
		}
	}
	list = slices.DeleteFunc(list, func(rec driver.Record) bool { return rec.Version == "" || !strings.HasPrefix(rec.Key, prefix) })
	sort.SliceStable(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	return list, nil
}

// readAll reads objects, and returns empty records for those that are none.
func (r *Records) readAll(ctx context.Context, objects []string) ([]driver.Record, error) {
	list := make([]driver.Record, len(objects))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, object := range objects {
		group.Go(func() error { // ends at its time limit
			return r.again(ctx, func(ctx context.Context) error {
				o, err := r.bucket.Get(ctx, object)
				if rec, ok := parse(o); ok && objectKey(rec.Key) == object {
					list[i] = rec
				}
				return err
			})
		})
	}
	return list, group.Wait()
}

// Sweep counts all objects with the prefix, and deletes them if remove is true. It is for tests: locks that
// are held are lost.
func (r *Records) Sweep(ctx context.Context, remove bool) (n int, err error) {
	for after := ""; ; {
		var keys []string
		if keys, after, err = r.bucket.List(ctx, "", after); err != nil {
			return n, r.failure(fmt.Errorf("list the objects: %w", err))
		}
		n += len(keys)
		for _, key := range keys {
			if !remove {
				break
			}
			if err := r.bucket.Delete(ctx, key); err != nil {
				return n, r.failure(fmt.Errorf("delete an object: %w", err))
			}
		}
		if after == "" {
			return n, nil
		}
	}
}

// Clock implements driver.Records. It reads the Date header of an answer.
func (r *Records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return earliest, latest, err
	}
	_, o, err := r.read(ctx, "fencelock clock")
	if err != nil {
		return earliest, latest, r.failure(err)
	}
	return o.Date, o.Date.Add(time.Second), nil
}

// failure converts an error of a request to one of the records.
func (r *Records) failure(err error) error {
	if err == nil || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrConfig) {
		return err
	}
	return fmt.Errorf("%w: records in %s: %w", driver.ErrUnavailable, r.bucket.Name, err)
}
