// Package s3records stores records ([driver.Records]) as objects of S3 or of another object store
// with S3's interface and its conditional writes, If-None-Match: * and If-Match. Packages that need
// records can use them:
//
//	records := s3records.New("my-bucket", &s3records.Config{Region: "eu-west-1", Prefix: "locks/"})
//	if err := records.Init(ctx); err != nil { // checks that the store obeys conditions
//		return err
//	}
//	visits := optimistic.New(records, nil)
//
// A login needs s3:GetObject and s3:PutObject on the objects with the prefix, and s3:ListBucket on
// the bucket; without the latter, S3 answers "access denied" for a missing object. Init also needs
// s3:DeleteObject.
//
// Get, Clock and most calls of Swap are one request, List is one request for each record and one
// for each thousand. An expired record remains an object until the next Swap of its key.
//
// The store's clock is the Date header of its answers, which has whole seconds: a record may remain
// for two seconds longer than its TTL. If an answer to a Swap is lost, the store's later answers
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/awslogin"
	"github.com/fencelock/fencelock/internal/retry"
)

// Config holds the settings of Records.
type Config struct {
	// Region is the region of the bucket. Empty means AWS_REGION, AWS_DEFAULT_REGION or us-east-1.
	Region string

	// Endpoint is the URL of a store other than Amazon's, such as https://minio.example:9000. The
	// bucket is the first segment of its paths.
	Endpoint string

	// Prefix is put before all object keys. It may contain slashes.
	Prefix string

	// Timeout limits each call, with all its attempts. 0 means 5 seconds.
	Timeout time.Duration

	// Client sends the requests. Nil means http.DefaultClient.
	Client *http.Client

	// Sign signs a request whose body has this SHA-256 hash, in hexadecimal digits. Nil means the
	// login that the environment, the shared credentials file, a web identity token, the container
	// or the instance provides, in this order.
	Sign func(r *http.Request, hash string) error
}

// Records stores records in a bucket. It is safe for concurrent use.
type Records struct {
	bucket bucket
	limit  time.Duration

	mu     sync.Mutex // guards sample
	sample sample
}

// sample is a reading of the store's clock.
type sample struct {
	sent time.Time // by this host's clock, when the request was sent
	date time.Time // by the store's clock, when it was answered, without the fraction of a second
}

// New returns the records of a bucket. It does no I/O; the first call reports wrong settings.
func New(name string, cfg *Config) *Records {
	if cfg == nil {
		cfg = &Config{}
	}
	region := awslogin.Region(cfg.Region)
	r := &Records{limit: cmp.Or(cfg.Timeout, 5*time.Second)}
	r.bucket = bucket{
		name: name, region: region, endpoint: strings.TrimSuffix(cfg.Endpoint, "/"), prefix: cfg.Prefix,
		client: cmp.Or(cfg.Client, http.DefaultClient), sign: cfg.Sign, seen: r.note,
	}
	if r.bucket.sign == nil {
		r.bucket.sign = awslogin.New(r.bucket.client, "s3", region).Sign
	}
	return r
}

// Init checks that the store obeys the conditions of a write. It writes an object whose key is the
// prefix and "fencelock-init-" and random letters, and deletes it. The bucket must exist.
func (r *Records) Init(ctx context.Context) error {
	ctx, cancel, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	key, body := "fencelock-init-"+rand.Text(), []byte("checks conditional writes\n")
	first, err := r.bucket.put(ctx, key, body, "")
	if err != nil {
		return failure(err)
	}
	_, again := r.bucket.put(ctx, key, body, "")
	_, other := r.bucket.put(ctx, key, body, `"00000000000000000000000000000000"`)
	_, same := r.bucket.put(ctx, key, []byte("checked\n"), first)
	if err := r.bucket.delete(ctx, key); err != nil {
		return failure(err)
	}
	switch {
	case !errors.Is(again, errChanged) || !errors.Is(other, errChanged):
		return fmt.Errorf("%w: the store does not obey the conditions If-None-Match and If-Match of a write: %w", driver.ErrConfig, errors.Join(again, other))
	case same != nil:
		return failure(same)
	}
	return nil
}

// Get implements driver.Records.
func (r *Records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	ctx, cancel, err := r.begin(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	defer cancel()
	rec, _, err := r.get(ctx, key)
	if err != nil {
		return driver.Record{}, failure(err)
	}
	return rec, nil
}

// get returns a record, and the object that has it or an expired one. It retries failed requests.
func (r *Records) get(ctx context.Context, key string) (rec driver.Record, o object, err error) {
	err = again(ctx, func() error {
		rec = driver.Record{Key: key}
		if o, err = r.bucket.get(ctx, objectKey(key)); err == nil && o.etag != "" {
			rec, err = parse(key, o)
		}
		return err
	})
	return rec, o, err
}

// again sends a request that changes nothing, until it succeeds, a retry is useless or ctx ends.
func again(ctx context.Context, request func() error) error {
	for pause := backoff(); ; {
		err := request()
		if err == nil || errors.Is(err, driver.ErrConfig) || !pause.Wait(ctx) {
			return err
		}
	}
}

func backoff() *retry.Backoff { return retry.NewBackoff(20*time.Millisecond, time.Second) }

// magic begins the first line of an object, which goes on with the time at which the record
// expires, in milliseconds since 1970 or 0 for never, and a random text. The rest is the value. The
// random text makes the ETag, which may be a hash, differ from all earlier ones.
const magic = "fencelock-record 1 "

// parse returns the record of an object. An expired one has no version.
func parse(key string, o object) (driver.Record, error) {
	line, value, ok := bytes.Cut(o.body, []byte("\n"))
	text, found := strings.CutPrefix(string(line), magic)
	end, _, _ := strings.Cut(text, " ")
	expires, err := strconv.ParseInt(end, 10, 64)
	if !ok || !found || err != nil {
		return driver.Record{}, fmt.Errorf("%w: the object of the record %q was not written by this package", driver.ErrConfig, key)
	}
	if expires != 0 && o.date.UnixMilli() >= expires {
		return driver.Record{Key: key}, nil
	}
	return driver.Record{Key: key, Value: value, Version: o.etag + " " + end}, nil
}

// Swap implements driver.Records. It retries failed requests. The TTL counts from the call.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	ctx, cancel, err := r.begin(ctx)
	if err != nil {
		return "", err
	}
	defer cancel()
	now, err := r.latest(ctx)
	if err != nil {
		return "", failure(err)
	}
	end := "0"
	if ttl > 0 {
		end = strconv.FormatInt(now.Add(ttl+time.Millisecond).UnixMilli(), 10)
	}
	s := swap{r, key, version, append([]byte(magic+end+" "+rand.Text()+"\n"), value...)}
	etag, expires, _ := strings.Cut(version, " ")
	if ms, _ := strconv.ParseInt(expires, 10, 64); ms != 0 && now.UnixMilli() >= ms { // it may have expired
		etag, err = s.read(ctx)
	}
	if err == nil {
		etag, err = s.run(ctx, etag)
	}
	if err != nil {
		return "", failure(err)
	}
	return etag + " " + end, nil
}

// swap is a call of Swap.
type swap struct {
	*Records
	key, version string
	body         []byte
}

// errOurs means that an attempt whose answer was lost has written the object.
var errOurs = errors.New("written")

// run writes the object if its ETag is etag, or if there is none and etag is empty. It returns the
// new ETag.
func (s swap) run(ctx context.Context, etag string) (string, error) {
	var unknown error // of an attempt that may have written the object, or may still write it
	pause := backoff()
	for first := true; ; first = false {
		next, err := s.bucket.put(ctx, objectKey(s.key), s.body, etag)
		certain := errors.Is(err, errChanged) || errors.Is(err, errBusy) || errors.Is(err, driver.ErrConfig)
		switch {
		case err == nil:
			return next, nil
		case !certain:
			unknown = err
		case unknown == nil && errors.Is(err, driver.ErrConfig):
			return "", err
		}
		seen, read := "", err
		if first && errors.Is(err, errChanged) || pause.Wait(ctx) {
			seen, read = s.read(ctx)
		}
		switch {
		case errors.Is(read, errOurs):
			return seen, nil
		case read != nil && unknown != nil: // even if it is a conflict: it may have been written and replaced
			return "", fmt.Errorf("%w; then: %s", unknown, read.Error())
		case read != nil:
			return "", read
		}
		etag = seen
	}
}

// read returns the ETag from which the object may be written: that of the version, or of an expired
// record, or "". It returns ErrConflict if there is none, and errOurs with the ETag if the object is
// that of this swap.
func (s swap) read(ctx context.Context) (etag string, err error) {
	rec, o, err := s.get(ctx, s.key)
	switch {
	case err != nil:
		return "", err
	case bytes.Equal(o.body, s.body):
		return o.etag, errOurs
	case rec.Version != s.version:
		return "", driver.ErrConflict
	}
	return o.etag, nil
}

// List implements driver.Records. It lists the keys and then reads each record.
func (r *Records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var list []driver.Record
	for _, start := range objectPrefixes(prefix) {
		for after := ""; ; {
			objects, next, err := r.page(ctx, start, after)
			if err != nil {
				return nil, failure(err)
			}
			for _, object := range objects {
				key, ok := recordKey(object)
				if !ok || !strings.HasPrefix(key, prefix) || isEncoded(object) != isEncoded(start) {
					continue
				}
				switch rec, err := r.Get(ctx, key); {
				case err != nil:
					return nil, err
				case rec.Version != "":
					list = append(list, rec)
				}
			}
			if after = next; after == "" {
				break
			}
		}
	}
	slices.SortFunc(list, func(a, b driver.Record) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}

// page returns object keys that have a prefix, and the token of the next page, if there is one.
func (r *Records) page(ctx context.Context, prefix, after string) (keys []string, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	err = again(ctx, func() error {
		keys, next, err = r.bucket.list(ctx, prefix, after)
		return err
	})
	return keys, next, err
}

// Clock implements driver.Records.
func (r *Records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	ctx, cancel, err := r.begin(ctx)
	if err != nil {
		return earliest, latest, err
	}
	defer cancel()
	date, err := r.date(ctx)
	if err != nil {
		return earliest, latest, failure(err)
	}
	return date, date.Add(time.Second), nil
}

// date reads the store's clock.
func (r *Records) date(ctx context.Context) (time.Time, error) {
	_, o, err := r.get(ctx, "fencelock clock")
	return o.date, err
}

// note stores a reading of the store's clock.
func (r *Records) note(sent, date time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent.After(r.sample.sent) {
		r.sample = sample{sent, date}
	}
}

// fresh is how long a reading of the store's clock is used. Clocks hardly drift in this time, and if
// the store's clock is set, the old time does not remain in use.
const fresh = 10 * time.Second

// latest returns the latest time that the store's clock may have now.
func (r *Records) latest(ctx context.Context) (time.Time, error) {
	r.mu.Lock()
	s := r.sample
	r.mu.Unlock()
	if s.sent.IsZero() || time.Since(s.sent) > fresh {
		sent := time.Now()
		date, err := r.date(ctx)
		if err != nil {
			return time.Time{}, err
		}
		s = sample{sent, date}
	}
	return s.date.Add(time.Second + time.Since(s.sent)), nil
}

// begin returns the context of a call.
func (r *Records) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, r.limit)
	return limited, cancel, nil
}

// failure converts an error of a request to one of the records.
func failure(err error) error {
	if errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrConfig) {
		return err
	}
	return fmt.Errorf("%w: records in S3: %w", driver.ErrUnavailable, err)
}
