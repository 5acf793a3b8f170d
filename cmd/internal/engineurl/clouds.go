//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/bucket"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/stores/s3records"
)

var cloudSchemes = []scheme{
	{form: "azblob://account/container[/prefix][?endpoint=https://host]"},
	{form: "gs://bucket[/prefix]"},
}

// addClouds makes Open accept the URLs of Azure Blob Storage and Google Cloud Storage.
func addClouds() {
	for name, parse := range map[string]func(u *url.URL) (*cloudTarget, error){"azblob": parseAzure, "gs": parseGoogle} {
		s := schemeOf(name)
		s.open, s.part = openCloud(parse), cloudPart(parse)
	}
}

// cloudTarget is a parsed URL of a cloud's object store.
type cloudTarget struct {
	name, endpoint, prefix string // of the bucket; with the account, on Azure
	timeout                time.Duration
	transport              *http.Transport
	records                func() *s3records.Records
}

// openCloud returns a function that opens the engine of a URL, as openS3 does.
func openCloud(parse func(*url.URL) (*cloudTarget, error)) func(context.Context, *url.URL, means) (driver.Engine, func() error, error) {
	return func(ctx context.Context, u *url.URL, m means) (driver.Engine, func() error, error) {
		t, err := parse(u)
		if err != nil {
			return nil, nil, err
		}
		throughHTTP(t.transport, m.dial)
		here := s3Check + cmp.Or(t.endpoint, u.Scheme) + " " + t.name
		engine, end, err := openObjects(ctx, u.Scheme, here, t.records(), t.transport)
		if err == nil && u.Scheme == "gs" {
			engine = &googleEngine{engine.(*s3Engine)}
		}
		return engine, end, err
	}
}

// parseCloud parses what the URLs have in common. It does not connect.
func parseCloud(u *url.URL) (*cloudTarget, error) {
	switch {
	case u.User != nil:
		return nil, errors.New("the URL has a user; the login comes from the environment")
	case u.Opaque != "" || u.Fragment != "" || u.Host == "" || strings.Trim(u.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" || strings.Trim(u.Host, ".-") != u.Host:
		return nil, errors.New("the URL needs a name; write the store's address in endpoint=")
	}
	q, err := parseKnown(u, "endpoint", "timeout")
	if err != nil {
		return nil, err
	}
	t := &cloudTarget{name: u.Host, endpoint: q.Get("endpoint"), prefix: strings.Trim(u.Path, "/"), timeout: q.duration("timeout", 300*time.Millisecond, "5s"), transport: bucket.Transport()}
	return t, cmp.Or(fitsFolder(t.prefix), checkEndpoint(q), q.err)
}

func parseAzure(u *url.URL) (*cloudTarget, error) {
	t, err := parseCloud(u)
	if err != nil {
		return nil, err
	}
	account := t.name
	container, prefix, _ := strings.Cut(t.prefix, "/")
	if container == "" {
		return nil, errors.New("the URL needs an account and a container")
	}
	t.name += "/" + container
	t.records = func() *s3records.Records {
		return s3records.NewAzure(account, container, &s3records.AzureConfig{Endpoint: t.endpoint, Prefix: below(prefix), Timeout: t.timeout, Client: &http.Client{Transport: t.transport}})
	}
	return t, nil
}

func parseGoogle(u *url.URL) (*cloudTarget, error) {
	t, err := parseCloud(u)
	if err != nil {
		return nil, err
	}
	t.records = func() *s3records.Records {
		return s3records.NewGoogle(t.name, &s3records.GoogleConfig{Endpoint: t.endpoint, Prefix: below(t.prefix), Timeout: t.timeout, Client: &http.Client{Transport: t.transport}})
	}
	return t, nil
}

// cloudPart returns a function that returns the objects whose names begin with the prefix of a URL and
// another one.
func cloudPart(parse func(*url.URL) (*cloudTarget, error)) func(*url.URL, string) (*Part, error) {
	return func(u *url.URL, prefix string) (*Part, error) {
		u.Path = path.Join("/", u.Path, prefix)
		t, err := parse(u)
		if err != nil {
			return nil, err
		}
		return &Part{URL: u.String(), Hosts: hostOf(t.endpoint, u.Scheme), Dead: DeadLeases, sweep: func(ctx context.Context, remove bool) (int, error) {
			defer t.transport.CloseIdleConnections()
			t.timeout = sweepTimeout
			return t.records().Sweep(ctx, remove)
		}}, nil
	}
}

// googleEngine is an engine in a bucket of Google Cloud Storage.
type googleEngine struct{ *s3Engine }

// Inspect also says how often a lock can be acquired.
func (e *googleEngine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	findings, err := e.s3Engine.Inspect(ctx, ttl)
	return append(findings, inspect.Passed("write rate", "the store admits one write a second to an object: a name can be acquired every two seconds, so use it for leaders and jobs, not for short locks or queues")), err
}
