package house_test

import (
	"strings"
	"testing"
)

// handlersProgram is a program around the blocks of docs/handlers.md. It asks the
// handlers for one answer of each kind.
const handlersProgram = `package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

type server struct {
	locks  *fencelock.Locker
	lock   *fencelock.Lock
	charge func(ctx context.Context, id string, token int64) error
}

func (s *server) answer(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	token, ok := fencelock.TokenFrom(ctx)
	if !ok || token != s.lock.Token() {
		return errors.New("no token")
	}
	return ctx.Err()
}

func main() {
	engine := memlock.New(nil)
	s := &server{locks: fencelock.New(engine, nil)}
	s.lock, _ = s.locks.Acquire(context.Background(), "leader")
	mux := http.NewServeMux()
	mux.HandleFunc("POST /invoices/{id}", s.pay)
	mux.HandleFunc("/", s.serve)
	ask := func(method, path string, charge func(context.Context, string, int64) error) {
		s.charge = charge
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		fmt.Println(method, path, w.Code)
	}
	ask("POST", "/invoices/1", func(_ context.Context, id string, token int64) error {
		if id != "1" || token <= 0 {
			return errors.New("wrong")
		}
		return nil
	})
	ask("POST", "/invoices/2", func(context.Context, string, int64) error { return errors.New("no money") })
	ask("POST", "/invoices/3", func(ctx context.Context, _ string, _ int64) error {
		engine.Lose("invoice:3")
		<-ctx.Done()
		return nil
	})
	held, _ := s.locks.Acquire(context.Background(), "invoice:4")
	ask("POST", "/invoices/4", nil)
	_ = held.Release()
	engine.Refuse(errors.New("down"))
	ask("POST", "/invoices/5", nil)
	engine.Refuse(nil)
	ask("GET", "/", nil)
	engine.Lose("leader")
	ask("GET", "/", nil)
	_, _ = os.Stdout, time.Second
}
`

// exporterProgram scrapes the exporter of docs/observability.md.
const exporterProgram = `package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

func main() {
	engine, e := memlock.New(nil), &Exporter{}
	e.Locks = fencelock.New(engine, &fencelock.Config{Tracer: e.Tracer()})
	lock, _ := e.Locks.Acquire(context.Background(), "a")
	_, _ = e.Locks.TryAcquire(context.Background(), "a")
	_, _ = e.Locks.TryAcquire(context.Background(), "")
	lost, _ := e.Locks.Acquire(context.Background(), "b")
	engine.Lose("b")
	<-lost.Context().Done()
	for deadline := time.Now().Add(time.Minute); e.lost.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // losses are told a little later
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, nil)
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	slices.Sort(lines)
	for _, line := range lines {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "seconds") {
			fmt.Println(line)
		}
	}
	_ = lock.Release()
	links()
}

func links() {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	engine, linked := memlock.New(nil), make(chan string, 1)
	holder := fencelock.New(engine, &fencelock.Config{Tracer: Linked(
		func(context.Context) string { return trace }, func(context.Context, string) {})})
	waiter := fencelock.New(engine, &fencelock.Config{Tracer: Linked(
		func(context.Context) string { return "" }, func(_ context.Context, to string) { linked <- to })})
	lock, _ := holder.Acquire(context.Background(), "a")
	go func() { // ends when the lock is released
		next, _ := waiter.Acquire(context.Background(), "a")
		_ = next.Release()
	}()
	fmt.Println("linked to the holder:", <-linked == trace)
	_ = lock.Release()
}
`

// The Go blocks of a page compile, and do what the page says.
func TestPagesGo(t *testing.T) {
	for page, c := range map[string]struct{ program, want string }{
		"docs/handlers.md": {handlersProgram, `POST /invoices/1 204
POST /invoices/2 500
POST /invoices/3 500
POST /invoices/4 409
POST /invoices/5 503
GET / 200
GET / 421
`},
		"docs/observability.md": {exporterProgram, `fencelock_acquisitions_total{outcome="acquired"} 2
fencelock_acquisitions_total{outcome="failed"} 1
fencelock_acquisitions_total{outcome="held"} 1
fencelock_acquisitions_total{outcome="unavailable"} 0
fencelock_held 1
fencelock_lost_total 1
fencelock_renewals_failed_total 0
fencelock_renewals_total 0
fencelock_waiting 0
linked to the holder: true
`},
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			source := []string{c.program}
			for _, b := range readBlocks(t, page) {
				if b.language == "go" {
					source = append(source, b.text)
				}
			}
			if out := runOverlay(t, readmeDir(t), strings.Join(source, "\n")); out != c.want {
				t.Errorf("printed\n%s, want\n%s", out, c.want)
			}
		})
	}
}
