//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
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

// Bucket is a parsed URL of an object store.
type Bucket struct {
	Service, Endpoint string // Endpoint is "" for that of the service
	Timeout           time.Duration
	Transport         *http.Transport
	Records           func() *s3records.Records
	scheme, prefix    string
	name              string // of the bucket; with the account, on Azure
	slow              bool   // the store admits few writes to an object
}

// parseBucket parses what the URLs have in common. what is what they name.
func parseBucket(u *url.URL, service, what string, known ...string) (*Bucket, *query, error) {
	switch {
	case u.User != nil:
		return nil, nil, errors.New("the URL has a user; the login comes from the environment")
	case u.Opaque != "" || u.Fragment != "" || u.Host == "" || strings.Trim(u.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" || strings.Trim(u.Host, ".-") != u.Host:
		return nil, nil, fmt.Errorf("the URL needs the name of %s; write the store's address in endpoint=", what)
	}
	q, err := parseKnown(u, known...)
	if err != nil {
		return nil, nil, err
	}
	t := &Bucket{Service: service, scheme: u.Scheme, name: u.Host, Endpoint: q.Get("endpoint"), prefix: strings.Trim(u.Path, "/"), Timeout: q.duration("timeout", 300*time.Millisecond, "5s"), Transport: bucket.Transport()}
	return t, q, cmp.Or(fitsFolder(t.prefix), checkEndpoint(q), q.err)
}

// bucketPatience limits the requests before the first lock.
const bucketPatience = 15 * time.Second

// Open reads an object once, checks the store if nobody has done so, and returns the engine.
func (t *Bucket) Open(ctx context.Context, _ *slog.Logger) (driver.Engine, func() error, error) {
	records := t.Records()
	engine := &bucketEngine{recordlock.New(records, &recordlock.Config{Name: t.scheme}), records, t.slow}
	end := func() error { return closeBoth(engine.Close, t.Transport.CloseIdleConnections) }
	if err := prepareBucket(ctx, bucketCheck+cmp.Or(t.Endpoint, t.Service)+" "+t.name, records); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return engine, end, nil
}

// checkEndpoint checks the parameter endpoint.
func checkEndpoint(q *query) error {
	if endpoint, err := url.Parse(q.Get("endpoint")); q.Has("endpoint") && (err != nil || !plainHTTP(endpoint)) {
		return errors.New("endpoint= is no URL; write https://host or http://host:port")
	}
	return nil
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

// bucketChecked is the key of the record that names the store and the bucket that have been checked, and
// bucketCheck is the version of the check.
const bucketChecked, bucketCheck = "fencelock checked", "1 "

// prepareBucket reads a record, so that an error is reported before a request waits and retries. If the
// store has not been checked, it checks the store. here names the store and the bucket.
func prepareBucket(ctx context.Context, here string, records *s3records.Records) error {
	limited, cancel := context.WithTimeout(ctx, bucketPatience)
	defer cancel()
	rec, err := records.Get(limited, bucketChecked)
	if err == nil && string(rec.Value) != here {
		if err = records.Init(limited); err == nil {
			_, err = records.Swap(limited, bucketChecked, []byte(here), rec.Version, 0)
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

// bucketEngine is an engine in a bucket.
type bucketEngine struct {
	*recordlock.Engine
	records *s3records.Records
	slow    bool
}

// Inspect also checks that the store obeys conditions, and says how often a lock can be acquired.
func (e *bucketEngine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	switch err := e.records.Init(ctx); {
	case errors.Is(err, s3records.ErrConditions):
		return []driver.Finding{inspect.Found("conditions", driver.Broken, driver.OneLine(err).Error(),
			"two processes can hold the same lock", "use a store with conditional writes")}, nil
	case err != nil:
		return nil, err
	}
	findings, err := e.Engine.Inspect(ctx, ttl)
	if e.slow {
		findings = append(findings, inspect.Passed("write rate", "the store admits one write a second to an object: a name can be acquired every two seconds, so use it for leaders and jobs, not for short locks or queues"))
	}
	return append([]driver.Finding{inspect.Passed("conditions", "of concurrent writes on the same condition, one succeeds")}, findings...), err
}
