//go:build unix

package engineurl

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/fencelock/fencelock/stores/s3records"
)

// s3Parameters are the parameters of URLs of S3.
var s3Parameters = []string{"region", "endpoint", "timeout"}

// parseS3 parses a URL of S3.
func parseS3(u *url.URL) (*Bucket, error) {
	switch {
	case u.User != nil:
		return nil, errors.New("the URL has a user; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
	case strings.Contains(u.Host, "..") || strings.Contains(u.Host, "_"):
		return nil, errors.New("the URL needs the name of a bucket; write the store's address in endpoint=")
	}
	t, q, err := parseBucket(u, "S3", "a bucket", s3Parameters...)
	if err != nil {
		return nil, err
	}
	t.Records = func() *s3records.Records {
		return s3records.New(t.name, &s3records.Config{Region: q.Get("region"), Endpoint: t.Endpoint, Prefix: below(t.prefix), Timeout: t.Timeout, Client: &http.Client{Transport: t.Transport}})
	}
	return t, cmp.Or(checkAmazon(q, "bucket"), q.err)
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
