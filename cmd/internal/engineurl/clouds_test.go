//go:build unix

package engineurl

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// cloudParsers are those that AddAll adds.
var cloudParsers = map[string]func(*url.URL) (Target, error){
	"azblob": parser(parseAzure), "gs": parser(parseGoogle), "dynamodb": parser(parseDynamo),
}

func cloudURL(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
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
		_, err := cloudParsers[u.Scheme](u)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	dynamo, err := parseDynamo(cloudURL(t, "dynamodb://locks?endpoint=http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := dynamo.Open(ended, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if _, _, err := dynamo.Open(t.Context(), nil); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}
