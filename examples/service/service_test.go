package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock/goredis"
)

// running is a service in this process.
type running struct {
	config
	log  record
	stop context.CancelFunc
	err  chan error
}

// record is a log that can be read while it is written.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func start(t *testing.T, cfg config) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{config: cfg, stop: stop, err: make(chan error, 1)}
	ended := make(chan struct{})
	go func() { // ends when the test ends, at the latest
		defer close(ended)
		r.err <- run(ctx, cfg, slog.New(slog.NewTextHandler(&r.log, nil)))
	}()
	t.Cleanup(func() { stop(); <-ended })
	return r
}

// settings are those of a service on free ports.
func settings(t *testing.T, redis string) config {
	t.Helper()
	cfg, err := parse([]string{"-redis", redis, "-charge", "1s", "-drain", "100ms", "-report", "1s", "-listen", free(t), "-admin", free(t)})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func free(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(hosttest.FreePort(t)))
}

// get returns the status and the body, 0 if nothing answers.
func (r *running) get(path string) (int, string) {
	answer, err := http.Get("http://" + r.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}

// until waits until a path has a status, and a text in its body.
func (r *running) until(t *testing.T, path string, status int, text string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got, body := r.get(path)
		if got == status && strings.Contains(body, text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s answers %d %q, want %d %q; log:\n%s", path, got, body, status, text, &r.log)
		}
	}
}

func (r *running) pay(invoice, key string) int {
	req, err := http.NewRequest(http.MethodPost, "http://"+r.listen+"/invoices/"+invoice+"/payment", nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Idempotency-Key", key)
	req.SetBasicAuth("acme", "")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// A service that is stopped while it leads and answers a request finishes the request and releases
// its locks. It is not ready meanwhile, and lives.
func TestStop(t *testing.T) {
	server := redistest.StartRedis(t)
	cfg := settings(t, server.Addr())
	cfg.report = time.Hour // the end cancels a report that is being written, and logs that
	r := start(t, cfg)
	r.until(t, "/livez", http.StatusOK, "leading")
	r.until(t, "/readyz", http.StatusOK, "")
	status := make(chan int, 1)
	go func() { status <- r.pay("42", "key") }() // ends with the request
	r.until(t, "/metrics", http.StatusOK, `fencelock_hold_count{class="invoice",engine="redis",kind="lock",mode="exclusive"} 1`)
	r.stop()
	r.until(t, "/readyz", http.StatusServiceUnavailable, "stops")
	r.until(t, "/livez", http.StatusOK, "")
	if got := <-status; got != http.StatusNoContent {
		t.Errorf("the request that was being answered has status %d", got)
	}
	if err := <-r.err; err != nil {
		t.Errorf("the service ended with %v", err)
	}
	if log := r.log.String(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has warnings:\n%s", log)
	}
	for _, s := range held(t, server) {
		t.Errorf("a lock is held after the end: %v", s)
	}
}

// held returns the locks that are held.
func held(t *testing.T, server *redistest.Redis) (names []string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	engine := goredis.New(client, nil)
	defer func() { _, _ = engine.Close(), client.Close() }()
	all, err := fencelock.New(engine, nil).List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if len(s.Holders) > 0 {
			names = append(names, fmt.Sprint(s))
		}
	}
	return names
}

// A request with the key of an earlier one gets its answer, another payment of the same invoice is
// refused, and one account cannot use up the service.
func TestPayments(t *testing.T) {
	cfg := settings(t, redistest.StartRedis(t).Addr())
	cfg.charge = time.Millisecond
	r := start(t, cfg)
	r.until(t, "/readyz", http.StatusOK, "")
	for i, want := range []int{http.StatusNoContent, http.StatusNoContent, http.StatusConflict} {
		if got := r.pay("1", fmt.Sprint("key", i/2)); got != want {
			t.Errorf("payment %d has status %d, want %d", i, got, want)
		}
	}
	for i := 0; ; i++ {
		if got := r.pay("2", "many"); got == http.StatusTooManyRequests {
			break
		} else if i > 10000 {
			t.Fatalf("the rate is not limited: request %d has status %d", i, got)
		}
	}
}

// While Redis is unreachable, a service lives and is not ready. It stops in time.
func TestWithoutRedis(t *testing.T) {
	r := start(t, settings(t, free(t)))
	r.until(t, "/readyz", http.StatusServiceUnavailable, "")
	r.until(t, "/livez", http.StatusOK, "")
	r.stop()
	if err := <-r.err; err != nil {
		t.Errorf("the service ended with %v", err)
	}
}

// A port that is in use ends the service with an error.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, of := range []func(*config) *string{func(c *config) *string { return &c.listen }, func(c *config) *string { return &c.admin }} {
		cfg := settings(t, free(t))
		*of(&cfg) = l.Addr().String()
		if err := <-start(t, cfg).err; err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("the service ended with %v", err)
		}
	}
}

// The end waits for background work, which may need longer than requests. An error of it ends the
// service.
func TestBackground(t *testing.T) {
	broken := errors.New("broken")
	over := false
	cfg := settings(t, "")
	cfg.drain = 0
	s := &service{
		cfg: cfg, log: slog.New(slog.DiscardHandler), admin: &admin{}, api: &http.Server{}, probes: &http.Server{},
		background: map[string]func(context.Context) error{
			"slow": func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(200 * time.Millisecond)
				over = true
				return nil
			},
			"broken": func(context.Context) error { return broken },
		},
	}
	if err := s.run(t.Context()); !errors.Is(err, broken) || !over {
		t.Errorf("the service ended with %v; the slow work is over: %v", err, over)
	}
}
