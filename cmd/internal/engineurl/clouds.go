//go:build unix

package engineurl

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/fencelock/fencelock/stores/s3records"
)

// parseAzure parses a URL of Azure Blob Storage.
func parseAzure(u *url.URL) (*bucketTarget, error) {
	t, _, err := parseBucket(u, u.Scheme, "an account", "endpoint", "timeout")
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

// parseGoogle parses a URL of Google Cloud Storage, which admits one write a second to an object.
func parseGoogle(u *url.URL) (*bucketTarget, error) {
	t, _, err := parseBucket(u, u.Scheme, "a bucket", "endpoint", "timeout")
	if err != nil {
		return nil, err
	}
	t.slow = true
	t.records = func() *s3records.Records {
		return s3records.NewGoogle(t.name, &s3records.GoogleConfig{Endpoint: t.endpoint, Prefix: below(t.prefix), Timeout: t.timeout, Client: &http.Client{Transport: t.transport}})
	}
	return t, nil
}
