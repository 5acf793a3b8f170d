// Package bucket sends requests to a bucket of an object store: S3 and stores with its interface, Azure Blob
// Storage, or Google Cloud Storage.
package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/awslogin"
	"github.com/fencelock/fencelock/internal/httpcall"
)

// Config says where a bucket is.
type Config struct {
	Dialect  *Dialect      // nil means that of S3
	Name     string        // of the bucket or container
	Region   string        // of S3; empty means that of the environment, or us-east-1
	Endpoint string        // the URL of the store, without the bucket; empty means Amazon's
	Prefix   string        // of all object keys
	Client   *http.Client  // nil means one with a Transport
	Limit    time.Duration // of a request

	// Sign signs a request whose body has this SHA-256 hash. Nil means the login of the process at
	// Amazon.
	Sign func(r *http.Request, hash string) error
}

// Bucket is a bucket. It repeats no request. It is safe for concurrent use.
type Bucket struct {
	*Dialect
	base   string // the URL of the bucket, with a slash at the end
	prefix string
	client http.Client
	sign   func(r *http.Request, hash string) error
	limit  time.Duration
}

// New returns a bucket. It does no I/O.
func New(cfg Config) *Bucket {
	region := awslogin.Region(cfg.Region)
	b := &Bucket{Dialect: cmp.Or(cfg.Dialect, S3()), base: "https://" + cfg.Name + ".s3." + region + ".amazonaws.com/", prefix: cfg.Prefix, client: *cmp.Or(cfg.Client, usual), sign: cfg.Sign, limit: cfg.Limit}
	switch {
	case cfg.Endpoint != "":
		b.base = strings.TrimSuffix(cfg.Endpoint, "/") + "/" + cfg.Name + "/"
	case strings.Contains(cfg.Name, "."): // no certificate covers the name of such a host
		b.base = "https://s3." + region + ".amazonaws.com/" + cfg.Name + "/"
	}
	// S3 redirects to another region, for which the signature is wrong.
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if b.sign == nil {
		b.sign = awslogin.New(&b.client, "s3", region).Sign
	}
	return b
}

// usual is the client of all buckets without one.
var usual = &http.Client{Transport: Transport()}

// connections is how many idle connections to a store are kept.
const connections = 32

// Transport returns a new transport. It uses HTTP/1.1, so a request without an answer ends its
// connection, and does not ask for compression, since some proxies change the ETag of what they
// compress.
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.DisableCompression, t.Protocols = connections, true, new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// Object is an object as the store returns it. If there is none, its ETag is empty.
type Object struct {
	ETag           string // or what the dialect has as the version
	Body           []byte
	Modified, Date time.Time // when it was written and read, by the store's clock in whole seconds
}

// Errors of Put after which nothing was written.
var (
	ErrChanged = errors.New("the object has changed")                 // 412
	ErrBusy    = errors.New("another write of the object is running") // 409
)

// Get reads an object.
func (b *Bucket) Get(ctx context.Context, key string) (Object, error) {
	status, header, body, err := b.do(ctx, http.MethodGet, key, nil, nil, nil)
	if err != nil {
		return Object{}, err
	}
	o := Object{Body: body, Modified: date(header, "Last-Modified"), Date: date(header, "Date")}
	switch status {
	case http.StatusOK:
		o.ETag = header.Get(b.version)
	case http.StatusNotFound:
	default: // such as 409 and 412, which are answers to a write
		return Object{}, fmt.Errorf("the store answers %d to a read", status)
	}
	if o.Date.IsZero() || status == http.StatusOK && (o.ETag == "" || o.Modified.IsZero()) {
		return Object{}, fmt.Errorf("%w: the store's answer has no %s, Last-Modified or Date", driver.ErrConfig, b.version)
	}
	return o, nil
}

// Put writes an object if its ETag is etag, or if there is none and etag is empty. It returns the
// new ETag. After an error other than ErrChanged, ErrBusy and ErrConfig the object may have been
// written, or may be written later.
func (b *Bucket) Put(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if !b.known(etag) {
		return "", ErrChanged
	}
	name, value := b.when(etag)
	with := http.Header{name: {value}}
	for name, value := range b.written {
		with.Set(name, value)
	}
	status, header, _, err := b.do(ctx, http.MethodPut, key, nil, with, body)
	next := header.Get(b.version)
	switch {
	case err != nil:
		return "", err
	case changed(status, header):
		return "", ErrChanged
	case status == http.StatusConflict:
		return "", ErrBusy
	case next == "":
		return "", errors.New("the store's answer to a write has no " + b.version)
	}
	return next, nil
}

// Delete deletes an object, if there is one.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	_, _, _, err := b.do(ctx, http.MethodDelete, key, nil, nil, nil)
	return err
}

// List returns a page of object keys that have a prefix, and the token of the next page.
func (b *Bucket) List(ctx context.Context, prefix, token string) (keys []string, next string, err error) {
	_, _, body, err := b.do(ctx, http.MethodGet, "", b.list(b.prefix+prefix, token), nil, nil)
	if err != nil {
		return nil, "", err
	}
	if keys, next, err = b.page(body); err != nil {
		return nil, "", fmt.Errorf("%w: the store's list of objects: %w", driver.ErrConfig, err)
	}
	for i, key := range keys {
		keys[i] = strings.TrimPrefix(key, b.prefix)
	}
	return keys, next, nil
}

// maxBody is greater than any answer: an object has at most driver.MaxRecord bytes and a line, a
// list has a thousand keys.
const maxBody = 8 << 20

// do sends a request and returns the answer, which is 2xx, 404, 409 or 412. The other ones are
// errors, and so is a 404 unless it is about an object. With a query, the request is about the
// bucket.
func (b *Bucket) do(ctx context.Context, method, key string, query url.Values, header http.Header, body []byte) (int, http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	// A nil body, unlike an empty one, makes net/http send no Content-Length in a GET.
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, b.base, content)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	if query == nil {
		r.URL.RawPath = r.URL.EscapedPath() + awslogin.Escape(b.prefix+key, "/")
		r.URL.Path += b.prefix + key
	}
	r.URL.RawQuery = awslogin.Query(query)
	for name, value := range b.header {
		r.Header.Set(name, value)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	hash := sha256.Sum256(body)
	err = b.sign(r, hex.EncodeToString(hash[:]))
	_, unreadable := errors.AsType[*fs.PathError](err) // a file of the login
	switch {
	case unreadable, errors.Is(err, awslogin.ErrNone):
		return 0, nil, nil, fmt.Errorf("%w: %w", driver.ErrConfig, err)
	case err != nil:
		return 0, nil, nil, fmt.Errorf("sign a request: %w", err)
	}
	answer, err := httpcall.Do(&b.client, r)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return 0, nil, nil, e.Err // without the URL, which may have a signature
	}
	if err != nil {
		return 0, nil, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err == nil && answer.StatusCode/100 != 2 {
		err = problem(answer.StatusCode, text, b.Rights)
	}
	return answer.StatusCode, answer.Header, text, err
}

// date returns the time in a header, or the zero time.
func date(header http.Header, name string) time.Time {
	t, _ := http.ParseTime(header.Get(name))
	return t
}

// problem returns the error of an answer other than 2xx, or nil if it is about a condition of a
// write or a missing object.
func problem(status int, body []byte, rights string) error {
	var answer struct{ Code, Message string }
	_ = xml.Unmarshal(body, &answer) // a proxy's answer is not XML
	text := strings.TrimSpace(fmt.Sprintf("%d %s: %s", status, answer.Code, answer.Message))
	hint := ""
	switch {
	case status == http.StatusConflict, status == http.StatusPreconditionFailed, answer.Code == "NoSuchKey", answer.Code == "BlobNotFound":
		return nil
	case status >= 500 && status != http.StatusNotImplemented, status == http.StatusTooManyRequests,
		status == http.StatusRequestTimeout, answer.Code == "ExpiredToken", answer.Code == "RequestTimeout":
		return errors.New(text)
	case answer.Code == "RequestTimeTooSkewed":
		hint = " (set this host's clock)"
	case answer.Code == "NoSuchBucket":
		hint = " (create the bucket)"
	case answer.Code == "ContainerNotFound":
		hint = " (create the container)"
	case status/100 == 3, answer.Code == "AuthorizationHeaderMalformed":
		hint = " (set the region or the endpoint of the bucket)"
	case answer.Code == "InvalidAccessKeyId", answer.Code == "SignatureDoesNotMatch", answer.Code == "AuthenticationFailed", answer.Code == "InvalidAuthenticationInfo":
		hint = " (check the login)"
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		hint = " (the login needs " + rights + ")"
	case status == http.StatusNotImplemented:
		hint = " (the store has no conditional writes)"
	case status == http.StatusNotFound:
		hint = " (this is no bucket: check the endpoint)"
	}
	return fmt.Errorf("%w: the store answers %s%s", driver.ErrConfig, text, hint)
}
