//go:build unix

package engineurl

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/dynamotest"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
)

// addedSchemes are the schemes that AddAll adds.
func addedSchemes() map[string]scheme {
	return map[string]scheme{
		"azblob":   {open: bucketParser(parseAzure).open, part: bucketParser(parseAzure).part},
		"gs":       {open: bucketParser(parseGoogle).open, part: bucketParser(parseGoogle).part},
		"dynamodb": {open: openDynamo, part: dynamoPart},
	}
}

func cloudURL(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestClouds acquires a lock in each store, and inspects it. A part leaves nothing when it is cleared.
func TestClouds(t *testing.T) {
	for name, value := range map[string]string{"AZURE_STORAGE_KEY": "c2VjcmV0", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s3cret"} {
		t.Setenv(name, value)
	}
	azure := objecttest.Start(t, func(s *objecttest.Server) { s.Dialect = "azure" })
	dynamo := dynamotest.Start(t)
	for kind, raw := range map[string]string{
		"azblob":   "azblob://account/container/team?endpoint=" + azure.URL + "account",
		"dynamodb": "dynamodb://locks?endpoint=" + dynamo.URL,
	} {
		t.Run(kind, func(t *testing.T) {
			s := addedSchemes()[kind]
			part, err := s.part(cloudURL(t, raw), "part")
			if err != nil || part.Hosts[0] != "127.0.0.1" {
				t.Fatalf("%+v, %v", part, err)
			}
			engine, end, err := s.open(t.Context(), cloudURL(t, part.URL), options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = end() }()
			l, err := fencelock.New(engine, nil).Acquire(t.Context(), "part-job")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			if n, err := part.Count(t.Context()); err != nil || n == 0 {
				t.Errorf("%d objects, %v", n, err)
			}
			if left, err := part.Clear(t.Context()); err != nil || left != 0 {
				t.Errorf("%d objects are left, %v", left, err)
			}
		})
	}
}

// TestCloudURLs: wrong URLs are refused, and say what to write.
func TestCloudURLs(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	for raw, want := range map[string]string{
		"azblob://account":                   "needs an account and a container",
		"azblob://u:p@account/container":     "has a user",
		"azblob://account/c/a/../b":          "the prefix has an empty part",
		"gs://":                              "needs the name of a bucket",
		"gs://Bucket":                        "needs the name of a bucket",
		"gs://bucket?endpoint=here":          "endpoint= is no URL",
		"gs://bucket?region=eu":              "unknown parameter region",
		"gs://bucket?timeout=1ms":            "timeout=1ms",
		"dynamodb://locks":                   "the region of the table is not known",
		"dynamodb://locks/prefix?region=eu":  "nothing after it",
		"dynamodb://u:p@locks?region=eu":     "has a user",
		"dynamodb://locks?region=eu/x":       "region=eu/x",
		"dynamodb://locks?endpoint=host":     "endpoint= is no URL",
		"dynamodb://locks?region=eu&x=y":     "unknown parameter x",
		"dynamodb://l?region=eu":             "needs the name of a table",
		"dynamodb://locks?region=eu&timeout": "timeout has no value",
	} {
		u := cloudURL(t, raw)
		_, _, err := addedSchemes()[u.Scheme].open(t.Context(), u, options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	u := cloudURL(t, "dynamodb://locks?endpoint=http://127.0.0.1:1")
	if _, _, err := openDynamo(ended, u, options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if _, _, err := openDynamo(t.Context(), u, options{}); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}
