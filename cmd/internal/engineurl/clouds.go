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
func parseAzure(u *url.URL) (*Bucket, error) {
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
	t.Records = func() *s3records.Records {
		return s3records.NewAzure(account, container, &s3records.AzureConfig{Endpoint: t.Endpoint, Prefix: below(prefix), Timeout: t.Timeout, Client: &http.Client{Transport: t.Transport}})
	}
	return t, nil
}

// parseGoogle parses a URL of Google Cloud Storage, which admits one write a second to an object.
func parseGoogle(u *url.URL) (*Bucket, error) {
	t, _, err := parseBucket(u, u.Scheme, "a bucket", "endpoint", "timeout")
	if err != nil {
		return nil, err
	}
	t.slow = true
	t.Records = func() *s3records.Records {
		return s3records.NewGoogle(t.name, &s3records.GoogleConfig{Endpoint: t.Endpoint, Prefix: below(t.prefix), Timeout: t.Timeout, Client: &http.Client{Transport: t.Transport}})
	}
	return t, nil
}
