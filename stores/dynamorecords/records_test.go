package dynamorecords_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/internal/testkit/dynamotest"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/dynamorecords"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s3cret"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// open returns the records of a table, which exists.
func open(t testing.TB, s *dynamotest.Server) *dynamorecords.Records {
	t.Helper()
	r := dynamorecords.New("locks", &dynamorecords.Config{Endpoint: s.URL, Timeout: time.Minute})
	if err := r.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// world is a table, beside a memory that has the locks which some of the cases take.
type world struct {
	server *dynamotest.Server
	locks  *memlock.Engine
	mend   chan struct{}
}

func (w *world) Client(t testing.TB) drivertest.Client {
	return examtest.Store{Engine: w.locks.Client(), Stored: open(t, w.server)}
}

func (w *world) Restart(testing.TB) {}

func (w *world) Cut(testing.TB) {
	mend := make(chan struct{})
	w.mend = mend
	w.server.Intercept(func(string, func()) (int, string) {
		<-mend
		return http.StatusServiceUnavailable, "ServiceUnavailable"
	})
}

func (w *world) Mend(testing.TB) {
	w.server.Intercept(nil)
	close(w.mend)
}

// TestExam runs the cases of the conformance suite that are about records.
func TestExam(t *testing.T) {
	t.Parallel()
	examtest.Records(t, "record-", drivertest.Suite{MaxRecord: dynamorecords.MaxRecord, World: func(t testing.TB) drivertest.World {
		return &world{server: dynamotest.Start(t), locks: memlock.New(nil)}
	}})
}

// TestHolderGone measures when the lock of a holder that is gone is granted to a waiter.
func TestHolderGone(t *testing.T) {
	t.Parallel()
	s := dynamotest.Start(t)
	open(t, s)
	examtest.Gone(t, examtest.Links(strings.TrimPrefix(s.URL, "http://"), func(t testing.TB, addr string) driver.Engine {
		e := recordlock.New(dynamorecords.New("locks", &dynamorecords.Config{Endpoint: "http://" + addr}), nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}))
}

// puts answers the first PutItems, and counts all.
func puts(s *dynamotest.Server, answer func(n int64, serve func()) (int, string)) *atomic.Int64 {
	var n atomic.Int64
	s.Intercept(func(action string, serve func()) (int, string) {
		if action != "PutItem" {
			return 0, ""
		}
		return answer(n.Add(1), serve)
	})
	return &n
}

// TestAnswers: an error that has changed nothing is followed by another attempt, and so is a lost answer, which
// finds what it has written.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		kind    string
		written bool // although the answer is an error
	}{
		"throttled":                {400, "ThrottlingException", false},
		"too much for the table":   {400, "ProvisionedThroughputExceededException", false},
		"too many requests":        {400, "RequestLimitExceeded", false},
		"an expired token":         {400, "ExpiredTokenException", false},
		"an error, not written":    {500, "InternalServerError", false},
		"an error, but written":    {500, "InternalServerError", true},
		"unavailable, but written": {503, "ServiceUnavailable", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamotest.Start(t)
			r := open(t, s)
			n := puts(s, func(n int64, serve func()) (int, string) {
				if n > 2 {
					return 0, ""
				}
				if c.written {
					serve()
				}
				return c.status, c.kind
			})
			version, err := r.Swap(t.Context(), "key", []byte("one"), "", 0)
			if err != nil || n.Load() != 3 {
				t.Fatalf("%d writes, %v", n.Load(), err)
			}
			n.Store(0)
			if version, err = r.Swap(t.Context(), "key", []byte("two"), version, time.Hour); err != nil || n.Load() != 3 {
				t.Fatalf("%d writes, %v", n.Load(), err)
			}
			rec, err := r.Get(t.Context(), "key")
			if err != nil || rec.Version != version || string(rec.Value) != "two" {
				t.Errorf("got %q, %v", rec.Value, err)
			}
		})
	}
}

// TestUnknown: an answer is lost, and another process replaces what was written. Whether this one has written
// cannot be told.
func TestUnknown(t *testing.T) {
	t.Parallel()
	s := dynamotest.Start(t)
	r, other := open(t, s), open(t, s)
	if _, err := other.Get(t.Context(), "key"); err != nil { // so that it knows the clock
		t.Fatal(err)
	}
	puts(s, func(n int64, serve func()) (int, string) {
		if n > 1 {
			return 0, ""
		}
		serve()
		rec, err := other.Get(t.Context(), "key")
		if err == nil {
			_, err = other.Swap(t.Context(), "key", []byte("other"), rec.Version, 0)
		}
		if err != nil {
			t.Error(err)
		}
		return 500, "InternalServerError"
	})
	if _, err := r.Swap(t.Context(), "key", []byte("one"), "", 0); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// TestRefusals: what cannot work is refused, and says what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	global := dynamotest.Start(t)
	open(t, global)
	global.Replicas = []string{"eu-west-1"}
	r := dynamorecords.New("locks", &dynamorecords.Config{Endpoint: global.URL})
	for name, err := range map[string]error{"Init": r.Init(t.Context()), "Get": second(r.Get(t.Context(), "key")), "Swap": second(r.Swap(t.Context(), "key", nil, "", 0)), "List": second(r.List(t.Context(), ""))} {
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "global table") {
			t.Errorf("%s in a global table: %v", name, err)
		}
	}
	archived := dynamotest.Start(t)
	open(t, archived)
	archived.Status = "ARCHIVED"
	r = dynamorecords.New("locks", &dynamorecords.Config{Endpoint: archived.URL})
	for name, err := range map[string]error{"Init": r.Init(t.Context()), "Get": second(r.Get(t.Context(), "key"))} {
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "ARCHIVED") {
			t.Errorf("%s in an archived table: %v", name, err)
		}
	}
	s := dynamotest.Start(t)
	r = dynamorecords.New("locks", &dynamorecords.Config{Endpoint: s.URL, Timeout: time.Second})
	if _, err := r.Get(t.Context(), "key"); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "Init creates it") {
		t.Errorf("no table: %v", err)
	}
	for kind, want := range map[string]string{"AccessDeniedException": "the login needs", "UnrecognizedClientException": "check the login", "InvalidSignatureException": "clock"} {
		s.Intercept(func(string, func()) (int, string) { return 400, kind })
		if _, err := r.Get(t.Context(), "key"); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	s.Intercept(func(string, func()) (int, string) { return 400, "ThrottlingException" })
	if _, err := r.Get(t.Context(), "key"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("throttled for ever: %v", err)
	}
	s.Intercept(nil)
	if err := r.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Swap(t.Context(), "key", make([]byte, dynamorecords.MaxRecord+1), "", 0); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a long value: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestStrangeAnswers: an answer of a proxy is not one of DynamoDB, whatever its status is. The request may
// have been served, and is sent again.
func TestStrangeAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		date, body string
		kind       string // of the header Content-Type
	}{
		"no date":                  {200, "", "{}", "application/x-amz-json-1.0"},
		"a page":                   {200, "", "<html>welcome</html>", "text/html"},
		"an empty answer":          {200, "", "", ""},
		"a proxy's 503":            {503, "", "<html>no server</html>", "text/html"},
		"a proxy's 502, with date": {502, "Sat, 01 Jan 2050 00:00:00 GMT", "<html>no server</html>", "text/html"},
		"a proxy's 429":            {429, "", "slow down", "text/plain"},
		"a proxy's 408":            {408, "", "too slow", "text/plain"},
		"a date of 2050, and 503":  {503, "Sat, 01 Jan 2050 00:00:00 GMT", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamotest.Start(t)
			target, err := url.Parse(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			proxy := httputil.NewSingleHostReverseProxy(target)
			var left atomic.Int64
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutItem") || left.Add(-1) < 0 {
					proxy.ServeHTTP(w, r)
					return
				}
				proxy.ServeHTTP(httptest.NewRecorder(), r) // it has been served
				w.Header()["Date"] = nil
				if c.date != "" {
					w.Header().Set("Date", c.date)
				}
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			t.Cleanup(front.Close)
			r := dynamorecords.New("locks", &dynamorecords.Config{Endpoint: front.URL, Timeout: patience})
			if err := r.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			version := ""
			for _, value := range []string{"one", "two"} {
				left.Store(2)
				if version, err = r.Swap(t.Context(), "key", []byte(value), version, time.Hour); err != nil {
					t.Fatal(err)
				}
				if rec, err := r.Get(t.Context(), "key"); err != nil || rec.Version != version || string(rec.Value) != value {
					t.Fatalf("got %q of %q, %v", rec.Value, rec.Version, err)
				}
			}
			if want := int64(0); name != "no date" && left.Load() >= want {
				t.Errorf("an answer of the proxy was taken for one of DynamoDB: %d left", left.Load())
			}
		})
	}
}

// TestUnknownThenRefused: an answer is lost, and the login loses its rights. Whether this one has written
// cannot be told.
func TestUnknownThenRefused(t *testing.T) {
	t.Parallel()
	s := dynamotest.Start(t)
	r := open(t, s)
	puts(s, func(n int64, serve func()) (int, string) {
		if n == 1 {
			serve()
			return 500, "InternalServerError"
		}
		return 400, "AccessDeniedException"
	})
	if _, err := r.Swap(t.Context(), "key", []byte("one"), "", 0); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// patience bounds what must happen, however slow the machine is.
const patience = time.Minute

// TestOutageCostsOneLimit: the service does not answer. A hundred concurrent calls of locks and records end
// within their limits of their own start.
func TestOutageCostsOneLimit(t *testing.T) {
	t.Parallel()
	s := dynamotest.Start(t)
	open(t, s)
	const limit = 5 * time.Second // Config.Timeout
	r := dynamorecords.New("locks", &dynamorecords.Config{Endpoint: s.URL})
	e := recordlock.New(r, nil)
	defer func() { _ = e.Close() }()
	held := examtest.Held(t, e)
	over := make(chan bool)
	defer close(over)
	s.Intercept(func(string, func()) (int, string) {
		<-over
		return 500, "InternalServerError"
	})
	examtest.Outage(t, slices.Concat(examtest.Calls(e, held, limit+time.Second), examtest.Lists(e, limit), examtest.RecordCalls(r, limit)))
}

// TestSilentConnections: the connections have been dropped without a word, and new ones work.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	s := dynamotest.Start(t)
	open(t, s)
	examtest.SilentConnections(t, s.URL, func(url string) driver.Engine {
		e := recordlock.New(dynamorecords.New("locks", &dynamorecords.Config{Endpoint: url}), nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	})
}
