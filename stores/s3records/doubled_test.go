package s3records_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/s3records"
)

// doubled starts a proxy that sends each PUT to the store twice, and returns the second answer, as proxies do
// that try again without a word.
func doubled(t testing.TB, s *objecttest.Server) *s3records.Records {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			before := r.Clone(r.Context())
			before.Body, r.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
			proxy.ServeHTTP(httptest.NewRecorder(), before)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return s3records.New("bucket", &s3records.Config{Endpoint: front.URL, Timeout: time.Minute})
}

// TestDoubledWrites: the answer to a write that a proxy sends twice is a refusal by the condition, although the
// first one has written.
func TestDoubledWrites(t *testing.T) {
	login(t)
	r := doubled(t, objecttest.Start(t))
	version := put(t, r, "one", "", 0)
	version = put(t, r, "two", version, 0)
	put(t, r, "three", version, time.Hour)
	shows(t, r, "three")
}

// TestDoubledLocks: locks stay held through such a proxy.
func TestDoubledLocks(t *testing.T) {
	login(t)
	e := recordlock.New(doubled(t, objecttest.Start(t)), nil)
	defer func() { _ = e.Close() }()
	locks := fencelock.New(e, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := int64(0)
	for range 5 {
		l, err := locks.Acquire(ctx, "name")
		if err != nil {
			t.Fatal(err)
		}
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
