//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/bucket"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/s3records"
)

var s3Schemes = []scheme{
	{form: "s3://bucket[/prefix][?region=NAME][&endpoint=https://host]", open: openS3},
}

// s3Parameters are the parameters of URLs of S3.
var s3Parameters = []string{"region", "endpoint", "timeout"}

// s3Patience limits the requests before the first lock.
const s3Patience = 15 * time.Second

// s3Target is a parsed URL of S3.
type s3Target struct {
	name      string // of the bucket
	config    s3records.Config
	transport *http.Transport
}

// openS3 reads an object once, checks the store if nobody has done so, and returns the engine of the
// URL.
func openS3(ctx context.Context, u *url.URL, m means) (driver.Engine, func() error, error) {
	target, err := parseS3(u)
	if err != nil {
		return nil, nil, err
	}
	throughHTTP(target.transport, m.dial)
	here := s3Check + cmp.Or(target.config.Endpoint, "S3") + " " + target.name
	return openObjects(ctx, "s3", here, s3records.New(target.name, &target.config), target.transport)
}

// openObjects returns an engine on objects, after the first requests to the store.
func openObjects(ctx context.Context, name, here string, records *s3records.Records, transport *http.Transport) (driver.Engine, func() error, error) {
	engine := &s3Engine{recordlock.New(records, &recordlock.Config{Name: name}), records}
	end := func() error { return closeBoth(engine.Close, transport.CloseIdleConnections) }
	if err := prepareObjects(ctx, here, records); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return engine, end, nil
}

// parseS3 parses a URL. It does not connect.
func parseS3(u *url.URL) (*s3Target, error) {
	prefix := strings.Trim(u.Path, "/")
	switch {
	case u.User != nil:
		return nil, errors.New("the URL has a user; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
	case u.Opaque != "" || u.Fragment != "" || strings.Trim(u.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" ||
		strings.Trim(u.Host, ".-") != u.Host || u.Host == "" || strings.Contains(u.Host, ".."):
		return nil, errors.New("the URL needs the name of a bucket; write the store's address in endpoint=")
	}
	if err := fitsFolder(prefix); err != nil {
		return nil, err
	}
	q, err := parseKnown(u, s3Parameters...)
	if err != nil {
		return nil, err
	}
	t := &s3Target{name: u.Host, transport: bucket.Transport()}
	t.config = s3records.Config{
		Region: q.Get("region"), Endpoint: q.Get("endpoint"), Timeout: q.duration("timeout", 300*time.Millisecond, "5s"),
		Client: &http.Client{Transport: t.transport}, Prefix: below(prefix),
	}
	err = checkAmazon(q, "bucket")
	return t, cmp.Or(err, q.err)
}

// checkAmazon checks the parameters region and endpoint of something that Amazon, or a server with its
// interface, stores.
func checkAmazon(q *query, what string) error {
	region := q.Get("region")
	if strings.Trim(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" { // it is a part of the host
		q.fail("region", "write the name of a region, such as eu-west-1")
	}
	if !q.Has("endpoint") && cmp.Or(region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")) == "" {
		return errors.New("the region of the " + what + " is not known; write region=, or set AWS_REGION")
	}
	return checkEndpoint(q)
}

// checkEndpoint checks the parameter endpoint.
func checkEndpoint(q *query) error {
	if endpoint, err := url.Parse(q.Get("endpoint")); q.Has("endpoint") && (err != nil || !plainHTTP(endpoint)) {
		return errors.New("endpoint= is no URL; write https://host or http://host:port")
	}
	return nil
}

// hostOf returns the host of an endpoint; without one, the name of the service.
func hostOf(endpoint, service string) []string {
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		return []string{u.Hostname()}
	}
	return []string{service}
}

// fitsFolder returns an error if objects cannot be below a folder.
func fitsFolder(folder string) error {
	if folder != "" && path.Clean("/"+folder) != "/"+folder {
		return errors.New("the prefix has an empty part, . or ..")
	}
	return nil
}

// below returns the prefix of the names of objects in a folder.
func below(folder string) string {
	if folder == "" {
		return ""
	}
	return folder + "/"
}

// plainHTTP reports whether a URL has a host, and may have a path, but nothing else.
func plainHTTP(u *url.URL) bool {
	port, err := strconv.Atoi(cmp.Or(u.Port(), "80"))
	return (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && err == nil && port <= 65535 &&
		u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// s3Checked is the key of the record that names the store and the bucket that have been checked, and
// s3Check is the version of the check.
const s3Checked, s3Check = "fencelock checked", "1 "

// prepareObjects reads a record, so that an error is reported before a request waits and retries. If the
// store has not been checked, it checks the store. here names the store and the bucket.
func prepareObjects(ctx context.Context, here string, records *s3records.Records) error {
	limited, cancel := context.WithTimeout(ctx, s3Patience)
	defer cancel()
	rec, err := records.Get(limited, s3Checked)
	if err == nil && string(rec.Value) != here {
		if err = records.Init(limited); err == nil {
			_, err = records.Swap(limited, s3Checked, []byte(here), rec.Version, 0)
		}
	}
	switch {
	case err == nil, errors.Is(err, driver.ErrConflict): // another process has checked it, too
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	hint := "check the bucket and the parameters in FENCELOCK_URL, and the login"
	if errors.Is(err, s3records.ErrConditions) {
		hint = "a store with conditional writes; locks in this one could have two holders"
	}
	return explain(err, nil, "", hint)
}

// s3Engine is an engine in a bucket.
type s3Engine struct {
	*recordlock.Engine
	records *s3records.Records
}

// Inspect also checks that the store obeys conditions.
func (e *s3Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	switch err := e.records.Init(ctx); {
	case errors.Is(err, s3records.ErrConditions):
		return []driver.Finding{inspect.Found("conditions", driver.Broken, driver.OneLine(err).Error(),
			"two processes can hold the same lock", "use a store with conditional writes")}, nil
	case err != nil:
		return nil, err
	}
	findings, err := e.Engine.Inspect(ctx, ttl)
	return append([]driver.Finding{inspect.Passed("conditions", "of concurrent writes on the same condition, one succeeds")}, findings...), err
}

// s3Part returns the objects whose keys begin with the prefix of the URL and another one.
func s3Part(u *url.URL, prefix string) (*Part, error) {
	u.Path = path.Join("/", u.Path, prefix)
	target, err := parseS3(u)
	if err != nil {
		return nil, err
	}
	return &Part{URL: u.String(), Hosts: hostOf(target.config.Endpoint, "S3"), Dead: DeadLeases, sweep: target.sweep}, nil
}

// sweepTimeout lets each request of a sweep take as long as those before the first lock: a list may be long.
const sweepTimeout = 3 * s3Patience

// sweep counts the objects with the prefix and deletes them.
func (t *s3Target) sweep(ctx context.Context, remove bool) (n int, err error) {
	defer t.transport.CloseIdleConnections()
	config := t.config
	config.Timeout = sweepTimeout
	return s3records.New(t.name, &config).Sweep(ctx, remove)
}
