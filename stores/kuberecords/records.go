// Package kuberecords keeps locks in Lease objects of Kubernetes (coordination.k8s.io/v1), with a small
// client of its own:
//
//	records, err := kuberecords.New(nil) // in a pod: with its service account, in its namespace
//	if err != nil {
//		return err
//	}
//	engine := recordlock.New(records, &recordlock.Config{Name: "kubernetes"})
//	locks := fencelock.New(engine, nil)
//
// A lock whose name can be the name of an object is the Lease object with that name. It excludes
// the leader election of client-go on the same object, and kubectl shows its holder.
//
// The account needs get, list, watch, create and patch on leases, and delete so that records that
// expired are removed. Get, Swap and Clock are one request each; List reads all Lease objects of the
// namespace. A value has at most 252 KiB, since Kubernetes limits annotations.
//
// The store's clock is the Date header of the API server, which has whole seconds: a record may
// remain for two seconds longer than its TTL.
package kuberecords

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/kubeapi"
	"github.com/fencelock/fencelock/internal/retry"
)

// Records stores records as Lease objects. It is safe for concurrent use.
type Records struct {
	api    *kubeapi.API
	prefix string
	limit  time.Duration
	swept  retry.Period

	mu     sync.Mutex // guards the fields below
	sample sample
	next   string // the page that is swept next
}

var _ driver.Awaiter = (*Records)(nil)

// sample is a reading of the store's clock.
type sample struct {
	sent time.Time // by this host's clock, when the request was sent
	date time.Time // by the store's clock, when it was answered, without the fraction of a second
}

// Annotations of an object that has a record.
const (
	domain      = "fencelock.github.io/"
	keyNote     = domain + "key"
	valueNote   = domain + "value"
	expiresNote = domain + "expires" // milliseconds since 1970; 0 is never
	writeNote   = domain + "write"   // a random text: a write of the same value is a change, too, and its answer shows it
)

// binary begins the annotation of a value that is no text, in base64.
const binary = "base64:"

// maxValue is the maximum length of a value. All annotations of an object may have 256 KiB; the
// others need some of that. A value that is not UTF-8 has at most three quarters of it.
const maxValue = 252 << 10

// managed is the label of the objects that this package has created.
const managed = "app.kubernetes.io/managed-by"

// Init checks the rights of the account, and that the API server obeys the condition of a write. It
// writes a record "init " with random letters, and deletes its object.
func (r *Records) Init(ctx context.Context) error {
	key := "init " + rand.Text()
	first, err := r.Swap(ctx, key, nil, "", 0)
	if err != nil {
		return err
	}
	_, err = r.Swap(ctx, key, nil, first, 0)
	_, again := r.Swap(ctx, key, nil, first, 0)
	switch {
	case err != nil:
	case again == nil:
		err = fmt.Errorf("%w: the server does not obey the resourceVersion of a patch", driver.ErrConfig)
	case !errors.Is(again, driver.ErrConflict):
		err = again
	}
	return errors.Join(err, r.call(ctx, func(ctx context.Context) error {
		return r.api.Remove(ctx, kubeapi.Metadata{Name: r.objectName(key)})
	}))
}

// Get implements driver.Records.
func (r *Records) Get(ctx context.Context, key string) (rec driver.Record, err error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	err = r.call(ctx, func(ctx context.Context) error {
		rec, _, err = r.get(ctx, key)
		return err
	})
	return rec, err
}

// get returns a record and the version of its object. It reads the store's clock, too.
func (r *Records) get(ctx context.Context, key string) (rec driver.Record, v version, err error) {
	sent := time.Now()
	o, at, err := r.api.Get(ctx, r.objectName(key))
	if err == nil {
		rec, v, err = r.record(key, &o, at)
	} else if errors.Is(err, kubeapi.ErrAbsent) {
		rec, err = driver.Record{Key: key}, nil
	}
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sample = sample{sent, at}
	}
	return rec, v, err
}

// version is what Swap has to know about the object that it replaces. The version of a record is its
// text.
type version struct {
	Resource    string // resourceVersion, which grows with every change in the cluster
	Expires     int64  // milliseconds since 1970; 0 is never
	Holder      string // in the spec
	Renewed     int64  // renewTime in the spec, in seconds since 1970
	Transitions int64  // leaseTransitions in the spec
	Beats       string // of the lock
}

func (v version) String() string {
	text, _ := json.Marshal(v)
	return string(text)
}

func parseVersion(text string) (v version, err error) {
	if text != "" && (json.Unmarshal([]byte(text), &v) != nil || v.Resource == "") {
		err = driver.ErrConflict // no record has it
	}
	return v, err
}

// record returns the record of an object at some time by the store's clock, and the version of the
// object. An expired record has none.
func (r *Records) record(key string, o *kubeapi.Object, at time.Time) (driver.Record, version, error) {
	if r.recordKey(o) != key {
		return driver.Record{}, version{}, fmt.Errorf("%w: the Lease object %q has no record, or that of another key", driver.ErrConfig, o.Metadata.Name)
	}
	if o.Spec == nil {
		o.Spec = &kubeapi.Spec{}
	}
	renewed, _ := time.Parse(time.RFC3339, o.Spec.Renewed)
	v := version{Resource: o.Metadata.ResourceVersion, Holder: o.Spec.Holder, Renewed: renewed.Unix(), Transitions: o.Spec.Transitions}
	v.Expires, _ = strconv.ParseInt(o.Metadata.Annotations[expiresNote], 10, 64)
	value := []byte(o.Metadata.Annotations[valueNote])
	if text, encoded := strings.CutPrefix(string(value), binary); encoded {
		value, _ = base64.StdEncoding.DecodeString(text)
	}
	exists := v.Expires == 0 || at.UnixMilli() < v.Expires
	if !exists {
		value = nil
	}
	name, isLock := strings.CutPrefix(key, r.prefix)
	if l, valid := parseLock(value); isLock && valid {
		value = l.meet(o.Spec, name, value)
		v.Beats = l.beats()
		exists = exists || l.foreign()
	}
	if !exists {
		return driver.Record{Key: key}, v, nil
	}
	return driver.Record{Key: key, Value: value, Version: v.String()}, v, nil
}

// Swap implements driver.Records. The TTL counts from the call.
func (r *Records) Swap(ctx context.Context, key string, value []byte, from string, ttl time.Duration) (next string, err error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	err = r.call(ctx, func(ctx context.Context) error {
		old, err := parseVersion(from)
		if err != nil {
			return err
		}
		var now time.Time
		if ttl > 0 || old.Expires != 0 {
			if now, err = r.latest(ctx); err != nil {
				return err
			}
		}
		if from == "" || old.Expires != 0 && now.UnixMilli() >= old.Expires { // an object may have expired
			var rec driver.Record
			if rec, old, err = r.get(ctx, key); err == nil && rec.Version != from {
				err = driver.ErrConflict
			}
			if err != nil {
				return err
			}
		}
		expires := int64(0)
		if ttl > 0 {
			expires = now.Add(ttl + time.Millisecond).UnixMilli()
		}
		o, err := r.object(key, value, old, expires)
		if err != nil {
			return err
		}
		written, at, err := r.api.Write(ctx, o)
		if err != nil {
			return err
		}
		if written.Metadata.Annotations[writeNote] != o.Metadata.Annotations[writeNote] { // a proxy answers
			return fmt.Errorf("the answer to a write of the Lease object %q shows another write", o.Metadata.Name)
		}
		_, v, err := r.record(key, &written, at)
		next = v.String()
		r.sweep(ctx)
		return err
	})
	return next, err
}

// object returns what is to be written in place of an old object.
func (r *Records) object(key string, value []byte, old version, expires int64) (*kubeapi.Object, error) {
	o := &kubeapi.Object{Metadata: kubeapi.Metadata{Name: r.objectName(key), ResourceVersion: old.Resource}}
	if old.Resource == "" {
		o.Metadata.Labels = map[string]string{managed: "fencelock"}
	}
	if l, valid := parseLock(value); valid && strings.HasPrefix(key, r.prefix) {
		o.Spec, value = l.spec(old, time.Now()), l.ours(value)
	}
	text := string(value)
	if !utf8.ValidString(text) || strings.HasPrefix(text, binary) {
		text = binary + base64.StdEncoding.EncodeToString(value)
	}
	if len(text) > maxValue {
		return nil, fmt.Errorf("%w: the value needs %d bytes, and an annotation of Kubernetes has at most %d", driver.ErrInvalid, len(text), maxValue)
	}
	o.Metadata.Annotations = map[string]string{
		keyNote: key, valueNote: text, expiresNote: strconv.FormatInt(expires, 10), writeNote: rand.Text(),
	}
	return o, nil
}

// List implements driver.Records. It reads all Lease objects of the namespace. The locks that other
// programs hold are among them.
func (r *Records) List(ctx context.Context, prefix string) (list []driver.Record, err error) {
	err = r.call(ctx, func(ctx context.Context) error {
		p, at, err := r.api.List(ctx, nil)
		if err != nil {
			return err
		}
		for _, o := range p.Items {
			key := r.recordKey(&o)
			if key == "" || !strings.HasPrefix(key, prefix) {
				continue
			}
			rec, v, err := r.record(key, &o, at)
			if err != nil {
				return err
			}
			if rec.Version != "" && (v.Holder != "" || o.Metadata.Annotations[keyNote] != "") {
				list = append(list, rec)
			}
		}
		sort.SliceStable(list, func(i, j int) bool { return list[i].Key < list[j].Key })
		return nil
	})
	return list, err
}

// sweep removes objects of records that expired a while ago, from a page of the list once a minute.
// It ignores errors, since it is repeated.
func (r *Records) sweep(ctx context.Context) {
	if !r.swept.Due(time.Minute) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r.mu.Lock()
	query := url.Values{"limit": {"500"}, "continue": {r.next}, "labelSelector": {managed + "=fencelock"}}
	r.mu.Unlock()
	p, at, _ := r.api.List(ctx, query)
	r.mu.Lock()
	r.next = p.Metadata.Continue // empty after an error: the next sweep begins again
	r.mu.Unlock()
	for _, o := range p.Items {
		expires, _ := strconv.ParseInt(o.Metadata.Annotations[expiresNote], 10, 64)
		if expires != 0 && (o.Spec == nil || o.Spec.Holder == "") && at.UnixMilli()-expires > time.Minute.Milliseconds() {
			_ = r.api.Remove(ctx, o.Metadata)
		}
	}
}

// Clock implements driver.Records.
func (r *Records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	err = r.call(ctx, func(ctx context.Context) error {
		s, err := r.clock(ctx, 0)
		earliest = s.date
		return err
	})
	return earliest, earliest.Add(time.Second), err
}

// fresh is how long a reading of the store's clock is used. Clocks hardly drift in this time, and if
// the store's clock is set, the old time does not remain in use.
const fresh = 10 * time.Second

// latest returns the latest time that the store's clock may have now.
func (r *Records) latest(ctx context.Context) (time.Time, error) {
	s, err := r.clock(ctx, fresh)
	return s.date.Add(time.Second + time.Since(s.sent)), err
}

// clock returns a reading of the store's clock that is not older than age.
func (r *Records) clock(ctx context.Context, age time.Duration) (sample, error) {
	r.mu.Lock()
	s := r.sample
	r.mu.Unlock()
	if time.Since(s.sent) < age {
		return s, nil
	}
	_, _, err := r.get(ctx, "fencelock clock") // there is no such record
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sample, err
}

// call bounds a call, and converts its error to one of the records.
func (r *Records) call(ctx context.Context, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	return failure(f(limited))
}

// failure converts an error of a request to one of the records.
func failure(err error) error {
	for _, kind := range []error{nil, driver.ErrConflict, driver.ErrConfig, driver.ErrInvalid, driver.ErrUnavailable} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return fmt.Errorf("%w: Kubernetes: %w", driver.ErrUnavailable, err)
}
