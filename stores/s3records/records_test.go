package s3records_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
	"github.com/fencelock/fencelock/stores/s3records"
)

// put writes a record, and fails the test on an error.
func put(t *testing.T, r *s3records.Records, value, version string, ttl time.Duration) string {
	t.Helper()
	next, err := r.Swap(t.Context(), "key", []byte(value), version, ttl)
	if err != nil {
		t.Fatalf("Swap to %q: %v", value, err)
	}
	return next
}

// shows fails the test unless the record has this value.
func shows(t *testing.T, r *s3records.Records, value string) {
	t.Helper()
	if rec, err := r.Get(t.Context(), "key"); err != nil || string(rec.Value) != value {
		t.Errorf("the record is %q (%v), want %q", rec.Value, err, value)
	}
}

// first makes the server treat the first PUT specially.
func first(s *objecttest.Server, then func(w http.ResponseWriter, serve func())) {
	s.Intercept(func(w http.ResponseWriter, r *http.Request, serve func()) bool {
		if r.Method != http.MethodPut {
			return false
		}
		s.Intercept(nil)
		then(w, serve)
		return true
	})
}

// TestAnswers: Swap acts on each answer that a store may give to its first write.
func TestAnswers(t *testing.T) {
	login(t)
	refuse := func(status int) func(http.ResponseWriter, func()) {
		return func(w http.ResponseWriter, _ func()) { w.WriteHeader(status) }
	}
	for name, answer := range map[string]func(http.ResponseWriter, func()){
		"busy":        refuse(http.StatusConflict),
		"unavailable": refuse(http.StatusServiceUnavailable),
		"slow down":   refuse(http.StatusTooManyRequests),
		"no answer":   func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) },
		"lost answer": func(_ http.ResponseWriter, serve func()) { serve(); panic(http.ErrAbortHandler) },
		"lost, and a failure": func(w http.ResponseWriter, serve func()) {
			serve()
			w.WriteHeader(http.StatusInternalServerError)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := objecttest.Start(t)
			records := open(s)
			version := put(t, records, "before", "", 0)
			first(s, answer)
			next := put(t, records, "after", version, 0)
			shows(t, records, "after")
			put(t, records, "last", next, 0) // next is the version in the store
		})
	}
}

// TestStrangeAnswers: an answer to a read that only writes can have does not mean that there is no
// record: a holder would find its lock lost.
func TestStrangeAnswers(t *testing.T) {
	login(t)
	for _, status := range []int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusNoContent} {
		s := objecttest.Start(t)
		records := open(s)
		put(t, records, "value", "", 0)
		answered := false
		s.Intercept(func(w http.ResponseWriter, _ *http.Request, _ func()) bool {
			if answered {
				return false
			}
			answered = true
			w.WriteHeader(status)
			return true
		})
		shows(t, records, "value")
	}
}

// TestUnreadableLogin: a file of the login that cannot be read is no failure of the store.
func TestUnreadableLogin(t *testing.T) {
	login(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir())
	if _, err := open(objecttest.Start(t)).Get(t.Context(), "key"); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("got %v, want ErrConfig", err)
	}
}

// TestUnknown: an attempt without an answer may have written the record before another writer
// replaced it. Swap does not return ErrConflict, which would mean that nothing was changed.
func TestUnknown(t *testing.T) {
	login(t)
	s := objecttest.Start(t)
	records, other := open(s), open(s)
	version := put(t, records, "before", "", 0)
	first(s, func(_ http.ResponseWriter, serve func()) {
		serve()
		rec, err := other.Get(t.Context(), "key")
		if err == nil {
			_, err = other.Swap(t.Context(), "key", []byte("theirs"), rec.Version, 0)
		}
		if err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	})
	if _, err := records.Swap(t.Context(), "key", []byte("ours"), version, 0); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	shows(t, records, "theirs")
}

// TestLateWrite: a write that reaches the store after Swap has returned ErrUnavailable changes
// nothing if another writer came first.
func TestLateWrite(t *testing.T) {
	login(t)
	s := objecttest.Start(t)
	records, other := open(s), open(s)
	version := put(t, records, "before", "", 0)
	held := s.HoldNext()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { // ends with its call
		_, err := records.Swap(ctx, "key", []byte("late"), version, 0)
		done <- err
	}()
	<-held.Caught()
	cancel()
	if err := <-done; !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrUnavailable and the error of the context", err)
	}
	put(t, other, "next", version, 0)
	held.Deliver()
	shows(t, records, "next")
}

// TestStoresClock: records expire by the store's clock, whatever that of this host is.
func TestStoresClock(t *testing.T) {
	login(t)
	s := objecttest.Start(t)
	s.SetClock(-90 * 24 * time.Hour)
	records := open(s)
	version := put(t, records, "value", "", time.Hour)
	shows(t, records, "value")
	s.SetClock(-90*24*time.Hour + 59*time.Minute)
	shows(t, records, "value")
	s.SetClock(-90*24*time.Hour + time.Hour + 3*time.Second)
	shows(t, records, "")
	if _, err := records.Swap(t.Context(), "key", nil, version, 0); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("Swap of an expired record: %v, want ErrConflict", err)
	}
	earliest, latest, err := records.Clock(t.Context())
	if err != nil || latest.Sub(earliest) != time.Second || time.Until(latest) > -89*24*time.Hour {
		t.Errorf("Clock: %v to %v (%v)", earliest, latest, err)
	}
}

// TestExpiry: a record is not over before its TTL, whatever the fractions are that the times of an
// answer lack, and if the server that answers is up to a second ahead of the one that wrote.
func TestExpiry(t *testing.T) {
	login(t)
	written := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]string{-time.Hour: "value", 11 * time.Second: "value", 12 * time.Second: "", time.Hour: ""} {
		s := objecttest.Start(t)
		s.Intercept(func(w http.ResponseWriter, _ *http.Request, _ func()) bool {
			w.Header().Set("ETag", `"a"`)
			w.Header().Set("Last-Modified", written.Format(http.TimeFormat))
			w.Header().Set("Date", written.Add(after).Format(http.TimeFormat))
			_, _ = io.WriteString(w, "fencelock-record 2 10s key text\nvalue")
			return true
		})
		shows(t, open(s), want)
	}
}

// TestFailures: each error says what to do.
func TestFailures(t *testing.T) {
	login(t)
	answer := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://elsewhere.invalid/")
			w.WriteHeader(status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>for a reason</Message></Error>", code)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		kind   error
		text   string
	}{
		"denied":     {answer(403, "AccessDenied"), driver.ErrConfig, "s3:ListBucket"},
		"clock":      {answer(403, "RequestTimeTooSkewed"), driver.ErrConfig, "set this host's clock"},
		"no bucket":  {answer(404, "NoSuchBucket"), driver.ErrConfig, "create the bucket"},
		"no store":   {answer(404, ""), driver.ErrConfig, "check the endpoint"},
		"region":     {answer(301, "PermanentRedirect"), driver.ErrConfig, "region"},
		"conditions": {answer(501, "NotImplemented"), driver.ErrConfig, "conditional writes"},
		"expired":    {answer(400, "ExpiredToken"), driver.ErrUnavailable, "ExpiredToken"},
		"proxy":      {answer(502, ""), driver.ErrUnavailable, "502"},
		"foreign": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"a"`)
			w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
			_, _ = io.WriteString(w, "hello")
		}, driver.ErrConfig, "not written by this package"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := time.Minute
			if c.kind == driver.ErrUnavailable {
				limit = 2 * time.Second // it tries again until then
			}
			s := objecttest.Start(t)
			s.Intercept(func(w http.ResponseWriter, r *http.Request, _ func()) bool { c.answer(w, r); return true })
			records := s3records.New("bucket", &s3records.Config{Endpoint: s.URL, Timeout: limit})
			_, get := records.Get(t.Context(), "key")
			_, swap := records.Swap(t.Context(), "key", nil, "", 0)
			_, list := records.List(t.Context(), "")
			for call, err := range map[string]error{"Get": get, "Swap": swap, "List": list} {
				if name == "foreign" && call != "Get" {
					continue // the answer is no list, and a PUT succeeds
				}
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%s: %v, want %v with %q", call, err, c.kind, c.text)
				}
			}
		})
	}
}

// TestInit: Init detects a store that does not obey conditions, or not those of concurrent writes.
// It may run again and again, and on many clients at once.
func TestInit(t *testing.T) {
	login(t)
	good, lax, torn := objecttest.Start(t), objecttest.Start(t), objecttest.Start(t)
	lax.Lax, torn.Torn = true, true
	var inits sync.WaitGroup
	for range 4 {
		inits.Go(func() { // ends with its call
			if err := open(good).Init(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	inits.Wait()
	for name, s := range map[string]*objecttest.Server{"no": lax, "torn": torn} {
		for range 2 { // the second one finds the object of the first one
			if err := open(s).Init(t.Context()); !errors.Is(err, s3records.ErrConditions) || !errors.Is(err, driver.ErrConfig) {
				t.Errorf("with %s conditions: %v, want ErrConditions", name, err)
			}
		}
	}
	if list, err := open(good).List(t.Context(), ""); err != nil || len(list) > 0 {
		t.Errorf("Init leaves the records %v (%v)", list, err)
	}
}

// TestNoLogin: without a login, the error names what to set.
func TestNoLogin(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ROLE_ARN"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if _, err := open(objecttest.Start(t)).Get(t.Context(), "key"); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Errorf("got %v", err)
	}
}
