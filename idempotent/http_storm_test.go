package idempotent_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// order is what the handlers and the clients of the storm know about one key.
type order struct {
	key      string
	at       atomic.Int64 // runs at this moment
	runs     atomic.Int64
	finished sync.Map     // the number of each run whose handler finished its answer, with that answer
	replayed atomic.Int64 // the run whose answer came as a replay, 0 for none
}

// storm counts what happened.
type storm struct {
	t      *testing.T
	orders []*order
	seen   sync.Map // how often each kind of exchange occurred, *atomic.Int64 by name
}

func (s *storm) count(what string) {
	n, _ := s.seen.LoadOrStore(what, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// behaviours are what a handler may do. Two of them always finish, and two if they have the time.
var behaviours = []func(w http.ResponseWriter, r *http.Request, answer string) (what string, finished bool){
	func(w http.ResponseWriter, _ *http.Request, answer string) (string, bool) {
		fmt.Fprint(w, answer)
		return "finished", true
	},
	func(w http.ResponseWriter, r *http.Request, answer string) (string, bool) {
		idempotent.Keep(r)
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, answer)
		return "kept, with the status 409", true
	},
	func(w http.ResponseWriter, _ *http.Request, answer string) (string, bool) {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		fmt.Fprint(w, answer[:rand.IntN(len(answer))])
		return "cut", false
	},
	func(w http.ResponseWriter, r *http.Request, answer string) (string, bool) {
		wait(r.Context(), 20*time.Millisecond)
		if r.Context().Err() != nil {
			fmt.Fprint(w, answer[:len(answer)/2])
			return "half, since the context ended", false
		}
		fmt.Fprint(w, answer)
		return "finished late", true
	},
	func(w http.ResponseWriter, r *http.Request, answer string) (string, bool) {
		wait(r.Context(), 20*time.Millisecond)
		if err := r.Context().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return "an error as 400", false
		}
		fmt.Fprint(w, answer)
		return "finished late", true
	},
	func(w http.ResponseWriter, _ *http.Request, answer string) (string, bool) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, answer[:3])
		return "refused", false
	},
	func(w http.ResponseWriter, _ *http.Request, answer string) (string, bool) {
		fmt.Fprint(w, answer[:3])
		panic(http.ErrAbortHandler)
	},
	func(w http.ResponseWriter, _ *http.Request, _ string) (string, bool) {
		w.WriteHeader(http.StatusCreated)
		panic("a fault")
	},
}

// wait waits for a time or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ServeHTTP runs an order.
func (s *storm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.Header.Get("Order"))
	o := s.orders[n]
	if at := o.at.Add(1); at != 1 {
		s.t.Errorf("%s: %d runs at once", o.key, at)
	}
	run := o.runs.Add(1)
	if got := o.replayed.Load(); got != 0 {
		s.t.Errorf("%s: run %d begins after the answer of run %d was repeated", o.key, run, got)
	}
	what := "panic"
	defer func() { // the effect is over, also after a panic
		s.count(what)
		o.at.Add(-1)
	}()
	wait(r.Context(), time.Duration(rand.Int64N(int64(2*time.Millisecond))))
	answer := fmt.Sprintf("%s run %d: %s", o.key, run, strings.Repeat("x", rand.IntN(500)))
	w.Header().Set("Served-For", r.Header.Get("Exchange"))
	w.Header().Set("Run", strconv.FormatInt(run, 10))
	var finished bool
	if what, finished = behaviours[rand.IntN(len(behaviours))](w, r, answer); finished {
		o.finished.Store(run, answer)
	}
}

// exchange sends one request for an order, and judges the answer if it came whole.
func (s *storm) exchange(client *http.Client, url string, n int, id string) {
	o := s.orders[n]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var body io.Reader = strings.NewReader("tea for " + o.key)
	switch rand.IntN(4) {
	case 0:
		hangUp := time.AfterFunc(time.Duration(rand.Int64N(int64(5*time.Millisecond))), cancel)
		defer hangUp.Stop()
	case 1:
		if rand.IntN(3) == 0 { // a body that is cut
			body = io.MultiReader(strings.NewReader("tea f"), broken{})
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		s.t.Error(err)
		return
	}
	r.Header.Set("Authorization", "alice")
	r.Header.Set("Idempotency-Key", o.key)
	r.Header.Set("Order", strconv.Itoa(n))
	r.Header.Set("Exchange", id)
	if rand.IntN(2) == 0 {
		r.ContentLength = int64(len("tea for " + o.key))
	}
	res, err := client.Do(r)
	if err != nil {
		s.count("client: no answer")
		return
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	forOther := res.Header.Get("Served-For") != id
	switch {
	case err != nil && forOther && ctx.Err() == nil && res.Header.Get("Run") != "":
		s.t.Errorf("%s: a retry got a cut answer: %v", o.key, err)
	case err != nil:
		s.count("client: a cut answer")
	case res.Header.Get("Run") == "": // of Handler or of a TimeoutHandler
		s.count("client: status " + res.Status)
		if res.StatusCode == http.StatusUnprocessableEntity || res.StatusCode == http.StatusInternalServerError {
			s.t.Errorf("%s: %d %s", o.key, res.StatusCode, got)
		}
	case forOther:
		s.count("client: a repeated answer")
		run, _ := strconv.ParseInt(res.Header.Get("Run"), 10, 64)
		if want, ok := o.finished.Load(run); !ok || want != string(got) {
			s.t.Errorf("%s: a retry got %d %q, which run %d did not finish", o.key, res.StatusCode, got, run)
		}
		if before := o.replayed.Swap(run); before != 0 && before != run {
			s.t.Errorf("%s: retries got the answers of the runs %d and %d", o.key, before, run)
		}
	default:
		s.count("client: an own answer")
	}
}

// broken is a body that fails.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestHTTPStorm sends many requests with random hang-ups, cut bodies, timeouts, panics and duplicates
// to four servers: the runs of a key never overlap, no retry gets an answer that its handler did not
// finish, and nothing runs after a retry got an answer.
func TestHTTPStorm(t *testing.T) { // not in parallel: other tests have limits of time
	orders, each := 150, 10
	if os.Getenv("FENCELOCK_SLOW") != "" {
		orders = 10_000
	}
	s := &storm{t: t}
	for i := range orders {
		s.orders = append(s.orders, &order{key: fmt.Sprint("order-", i)})
	}
	engine := memlock.New(nil)
	var urls []string
	for i := range 4 {
		store := jobs(engine, idempotent.Config{}).With(idempotent.Options{NoWait: i == 3})
		h := store.Handler(s, &idempotent.HTTP{Detach: i%2 == 1, Host: func(*http.Request) string { return "shop" }})
		if i >= 2 {
			h = http.TimeoutHandler(h, 15*time.Millisecond, "too slow")
		}
		server := httptest.NewUnstartedServer(h)
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the panics
		server.Start()
		t.Cleanup(server.Close)
		urls = append(urls, server.URL)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	begun := time.Now()
	next := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() { // ends with next
			for n := range next {
				var same sync.WaitGroup
				for i := range each {
					id := fmt.Sprint(n, "-", i)
					same.Go(func() { s.exchange(client, urls[rand.IntN(len(urls))], n, id) })
					if rand.IntN(2) == 0 {
						same.Wait()
					}
				}
				same.Wait()
			}
		})
	}
	for n := range orders {
		next <- n
	}
	close(next)
	workers.Wait()
	t.Logf("%d exchanges in %v", orders*each, time.Since(begun).Round(time.Millisecond))
	s.seen.Range(func(what, n any) bool {
		t.Logf("%7d %v", n.(*atomic.Int64).Load(), what)
		return true
	})
	if n, ok := s.seen.Load("client: a repeated answer"); !ok || n.(*atomic.Int64).Load() < int64(orders) {
		t.Error("too few answers were repeated")
	}
}
