package clients

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"
)

// ledger is what a service has done.
type ledger struct {
	t     *testing.T
	mu    sync.Mutex // guards done
	done  map[string]string
	twice atomic.Int64
}

// document is the file that is uploaded.
var document = strings.Repeat("a line of the document\n", 200)

// book has an effect, unless it refuses or fails before it: it writes the answer into the ledger.
func (l *ledger) book(w http.ResponseWriter, r *http.Request) {
	switch rand.IntN(12) {
	case 0:
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	case 1:
		panic("a fault before the effect")
	case 2:
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
	}
	order, err := orderOf(r)
	if err != nil {
		l.t.Errorf("%s: the handler got a damaged request: %v", r.Header.Get("Idempotency-Key"), err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := fmt.Sprintf("%s is booked as %d; %s", order, rand.Int64(), strings.Repeat("thank you ", rand.IntN(100)))
	l.mu.Lock()
	_, again := l.done[order]
	l.done[order] = answer
	l.mu.Unlock()
	if again {
		l.twice.Add(1)
		l.t.Errorf("%s: a second effect", order)
	}
	idempotent.Keep(r)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer) // the client may be gone
}

// orderOf reads the order of a request, which is the whole of it or wrong.
func orderOf(r *http.Request) (string, error) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return "", err
		}
		body = z
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		data, err := io.ReadAll(body)
		order, rest, _ := strings.Cut(string(data), "\n")
		if err == nil && rest != document {
			err = errors.New("another document")
		}
		return order, err
	}
	file, _, err := r.FormFile("file")
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(file)
	if err == nil && string(data) != document {
		err = errors.New("another document")
	}
	return r.FormValue("order"), err
}

// compressed answers in gzip if the client accepts it.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		z := gzip.NewWriter(w)
		w.Header().Set("Content-Encoding", "gzip")
		next.ServeHTTP(zipped{w, z}, r)
		_ = z.Close() // the client may be gone
	})
}

type zipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (w zipped) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

func (w zipped) Write(b []byte) (int, error) { return w.z.Write(b) }

// reply is what a client got in the end.
type reply struct {
	status int
	body   string
}

// clients send an order with retries, as people use them: with the defaults of the library for what is
// retried and how often, or four times where it does not retry by default. Only the pauses are shorter.
func clients(t *testing.T, url, file string) map[string]func(order string) (reply, error) {
	const least, most, patience = time.Millisecond, 20 * time.Millisecond, time.Minute
	hashicorp := retryablehttp.NewClient()
	hashicorp.RetryWaitMin, hashicorp.RetryWaitMax, hashicorp.Logger = least, most, nil
	hashicorp.HTTPClient.Timeout = patience
	impatient := retryablehttp.NewClient() // for which stalled requests are lost ones
	impatient.RetryWaitMin, impatient.RetryWaitMax, impatient.Logger = least, most, nil
	impatient.HTTPClient.Timeout = 40 * time.Millisecond
	t.Cleanup(func() {
		hashicorp.HTTPClient.CloseIdleConnections()
		impatient.HTTPClient.CloseIdleConnections()
	})
	rest := resty.New().SetRetryCount(4).SetRetryWaitTime(least).SetRetryMaxWaitTime(most).SetTimeout(patience).SetLogger(quiet{})
	rest.AddRetryCondition(func(r *resty.Response, _ error) bool { return r.StatusCode() >= 500 })
	plain := func(order string) []byte { return []byte(order + "\n" + document) }
	retryable := func(c *retryablehttp.Client, order, kind, encoding string, body []byte) (reply, error) {
		r, err := retryablehttp.NewRequest(http.MethodPost, url, body)
		if err != nil {
			return reply{}, err
		}
		r.Header.Set("Idempotency-Key", order)
		r.Header.Set("Authorization", "alice")
		r.Header.Set("Content-Type", kind)
		if encoding != "" {
			r.Header.Set("Content-Encoding", encoding)
		}
		res, err := c.Do(r)
		if err != nil {
			return reply{}, err
		}
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		return reply{res.StatusCode, string(got)}, err
	}
	resting := func(order string, r *resty.Request) (reply, error) {
		res, err := r.SetHeader("Idempotency-Key", order).SetHeader("Authorization", "alice").Post(url)
		if err != nil {
			return reply{}, err
		}
		return reply{res.StatusCode(), string(res.Body())}, nil
	}
	return map[string]func(order string) (reply, error){
		"retryablehttp": func(order string) (reply, error) {
			return retryable(hashicorp, order, "text/plain", "", plain(order))
		},
		"retryablehttp, impatient": func(order string) (reply, error) {
			return retryable(impatient, order, "text/plain", "", plain(order))
		},
		"retryablehttp, gzip": func(order string) (reply, error) {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(plain(order)) // never fails
			_ = z.Close()
			return retryable(hashicorp, order, "text/plain", "gzip", b.Bytes())
		},
		"retryablehttp, multipart": func(order string) (reply, error) {
			var b bytes.Buffer
			form := multipart.NewWriter(&b)
			_ = form.WriteField("order", order) // never fails
			part, _ := form.CreateFormFile("file", "document.txt")
			_, _ = io.WriteString(part, document)
			_ = form.Close()
			return retryable(hashicorp, order, form.FormDataContentType(), "", b.Bytes())
		},
		"resty": func(order string) (reply, error) {
			return resting(order, rest.R().SetHeader("Content-Type", "text/plain").SetBody(plain(order)))
		},
		"resty, multipart with a new boundary": func(order string) (reply, error) {
			return resting(order, rest.R().SetFormData(map[string]string{"order": order}).SetFile("file", file))
		},
	}
}

// quiet is a logger of nothing.
type quiet struct{}

func (quiet) Errorf(string, ...any) {}
func (quiet) Warnf(string, ...any)  {}
func (quiet) Debugf(string, ...any) {}

// TestRetryingClients: clients that nobody here wrote retry through a proxy with random faults. No order
// has two effects, and every answer is that of the ledger. FENCELOCK_SLOW makes it 10,000 exchanges.
func TestRetryingClients(t *testing.T) {
	exchanges := 600
	if os.Getenv("FENCELOCK_SLOW") != "" {
		exchanges = 10_000
	}
	dir, err := os.MkdirTemp("", "fencelock-clients-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "document.txt")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &ledger{t: t, done: map[string]string{}}
	engine := memlock.New(nil)
	store := idempotent.New(fencelock.New(engine, nil), engine.Records(), nil)
	backend := httptest.NewUnstartedServer(compressed(store.Handler(http.HandlerFunc(l.book), &idempotent.HTTP{
		Detach: true, Host: func(*http.Request) string { return "shop" },
	})))
	backend.Config.ErrorLog = log.New(io.Discard, "", 0) // of the panics
	backend.Start()
	t.Cleanup(backend.Close)
	proxy, url := newProxy(t, backend.URL)

	type task struct {
		client, order string
		send          func(string) (reply, error)
	}
	tasks := make(chan task)
	var mu sync.Mutex // guards outcomes
	outcomes := map[string]int{}
	var workers sync.WaitGroup
	begun := time.Now()
	for range 16 {
		workers.Go(func() { // ends with tasks
			for k := range tasks {
				got, err := k.send(k.order)
				outcome := fmt.Sprintf("%s: %d", k.client, got.status)
				if err != nil {
					outcome = k.client + ": gave up"
				} else {
					l.judge(k.order, got)
				}
				mu.Lock()
				outcomes[outcome]++
				mu.Unlock()
			}
		})
	}
	all := clients(t, url, file)
	for n := 0; n < exchanges; {
		for name, send := range all {
			tasks <- task{name, fmt.Sprintf("order-%d", n), send}
			n++
		}
	}
	close(tasks)
	workers.Wait()
	proxy.late.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%d effects for %d exchanges in %v", len(l.done), exchanges, time.Since(begun).Round(time.Millisecond))
	for outcome, n := range outcomes {
		t.Logf("%7d %s", n, outcome)
	}
	for fault, name := range faultNames {
		t.Logf("%7d requests %s", proxy.seen[fault].Load(), name)
	}
	if len(l.done) < exchanges/2 {
		t.Error("too few orders had an effect")
	}
}

// judge compares an answer with the ledger.
func (l *ledger) judge(order string, got reply) {
	l.mu.Lock()
	want, done := l.done[order]
	l.mu.Unlock()
	switch {
	case got.status == http.StatusCreated && (!done || got.body != want):
		l.t.Errorf("%s: the answer %q, the ledger has %q", order, got.body, want)
	case got.status == http.StatusCreated, got.status == http.StatusServiceUnavailable, got.status == http.StatusConflict:
	default:
		l.t.Errorf("%s: status %d %s", order, got.status, got.body)
	}
}
