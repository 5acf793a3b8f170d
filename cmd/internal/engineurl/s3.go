//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	records := s3records.New(target.name, &target.config)
	engine := &s3Engine{recordlock.New(records, &recordlock.Config{Name: "s3"}), records}
	end := func() error { return closeBoth(engine.Close, target.transport.CloseIdleConnections) }
	if err := target.prepare(ctx, records); err != nil {
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
	case prefix != "" && path.Clean("/"+prefix) != "/"+prefix:
		return nil, errors.New("the prefix has an empty part, . or ..")
	}
	q, err := parseKnown(u, s3Parameters...)
	if err != nil {
		return nil, err
	}
	t := &s3Target{name: u.Host, transport: bucket.Transport()}
	t.config = s3records.Config{
		Region: q.Get("region"), Endpoint: q.Get("endpoint"), Timeout: q.duration("timeout", 300*time.Millisecond, "5s"),
		Client: &http.Client{Transport: t.transport},
	}
	if strings.Trim(t.config.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" { // it is a part of the host
		q.fail("region", "write the name of a region, such as eu-west-1")
	}
	if prefix != "" {
		t.config.Prefix = prefix + "/"
	}
	endpoint, err := url.Parse(t.config.Endpoint)
	switch {
	case !q.Has("endpoint") && cmp.Or(t.config.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")) == "":
		return nil, errors.New("the region of the bucket is not known; write region=, or set AWS_REGION")
	case q.Has("endpoint") && (err != nil || !plainHTTP(endpoint)):
		return nil, errors.New("endpoint= is no URL; write https://host or http://host:port")
	}
	return t, q.err
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

// prepare reads a record, so that an error is reported before a request waits and retries. If the
// store has not been checked, it checks the store.
func (t *s3Target) prepare(ctx context.Context, records *s3records.Records) error {
	limited, cancel := context.WithTimeout(ctx, s3Patience)
	defer cancel()
	here := s3Check + cmp.Or(t.config.Endpoint, "S3") + " " + t.name
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
	hint := "check the bucket, region= and endpoint= in FENCELOCK_URL, and the login"
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
	p := &Part{URL: u.String(), Hosts: []string{"S3"}, sweep: target.sweep}
	if endpoint, err := url.Parse(target.config.Endpoint); err == nil && endpoint.Host != "" {
		p.Hosts[0] = endpoint.Hostname()
	}
	return p, nil
}

// sweep counts the objects with the prefix and deletes them.
func (t *s3Target) sweep(ctx context.Context, remove bool) (n int, err error) {
	defer t.transport.CloseIdleConnections()
	c := t.config
	b := bucket.New(bucket.Config{Name: t.name, Region: c.Region, Endpoint: c.Endpoint, Prefix: c.Prefix, Client: c.Client, Limit: s3Patience})
	for after := ""; ; {
		var keys []string
		if keys, after, err = b.List(ctx, "", after); err != nil {
			return n, fmt.Errorf("list the objects: %w", err)
		}
		n += len(keys)
		for _, key := range keys {
			if !remove {
				break
			}
			if err := b.Delete(ctx, key); err != nil {
				return n, fmt.Errorf("delete an object: %w", err)
			}
		}
		if after == "" {
			return n, nil
		}
	}
}
