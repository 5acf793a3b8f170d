package fenceobject_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fenceobject"
	"github.com/fencelock/fencelock/fence/internal/guardtest"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
	"github.com/fencelock/fencelock/memlock"
)

// shelf is a store in memory, for the example.
type shelf struct {
	mu      sync.Mutex // guards objects, writes
	objects map[string][]byte
	writes  int
}

func (s *shelf) Get(_ context.Context, key string, most int64) ([]byte, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, ok := s.objects[key]
	if !ok {
		return nil, "", nil
	}
	return body[:min(most, int64(len(body)))], fmt.Sprint(s.writes), nil
}

func (s *shelf) Put(_ context.Context, key string, body []byte, etag string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[key]; ok != (etag != "") || ok && etag != fmt.Sprint(s.writes) {
		return fenceobject.ErrChanged
	}
	s.objects[key] = body
	s.writes++
	return nil
}

// A holder that was stopped for longer than its lease writes late, and bounces.
func ExamplePut() {
	store := &shelf{objects: map[string][]byte{}}
	engine := memlock.New(nil)
	locks := fencelock.New(engine, nil)
	ctx := context.Background()

	paused, err := locks.Acquire(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	engine.Lose("report")                               // its lease ends

	err = locks.Do(ctx, "report", func(ctx context.Context) error {
		return fenceobject.Put(ctx, store, "report.txt", []byte("all is well"))
	})
	fmt.Println("next:", err)
	err = fenceobject.Put(inFlight, store, "report.txt", []byte("half a rep"))
	fmt.Println("late:", errors.Is(err, fence.ErrStale))
	data, _, _ := fenceobject.Get(ctx, store, "report.txt")
	fmt.Println(string(data))
	// Output:
	// next: <nil>
	// late: true
	// all is well
}

// object is a guarded object on a server.
func object(t *testing.T, s *objecttest.Server, key string) guardtest.Resource {
	store := fenceobject.HTTP{URL: s.URL}
	return guardtest.Resource{
		Name:  key,
		Write: func(ctx context.Context, value string) error { return fenceobject.Put(ctx, store, key, []byte(value)) },
		Read: func() (string, error) {
			data, _, err := fenceobject.Get(t.Context(), store, key)
			return string(data), err
		},
	}
}

func TestPut(t *testing.T) {
	t.Run("exam", func(t *testing.T) {
		if err := guardtest.Run(t.Context(), object(t, objecttest.Start(t), "näme/ \"quoted\"?#")); err != nil {
			t.Error(err)
		}
	})
	t.Run("late", lateRequest)
	t.Run("race", race)
	t.Run("mutants", mutants)
}

// late sends a write under token 8, which is on its way until others have written, and
// returns the error of the writer.
func late(t *testing.T, s *objecttest.Server, others func(r guardtest.Resource)) (guardtest.Resource, error) {
	r := object(t, s, "object")
	if err := r.Write(guardtest.Under(t, 8), "first"); err != nil {
		t.Fatal(err)
	}
	held, done := s.HoldNext(), make(chan error, 1)
	go func() { done <- r.Write(guardtest.Under(t, 8), "late") }() // ends with its write
	<-held.Caught()
	others(r)
	held.Deliver()
	return r, <-done
}

// lateRequest: a write that the server gets after a successor has written bounces, also if
// that has put the contents of before there again.
func lateRequest(t *testing.T) {
	for _, value := range []string{"next", "first"} {
		r, err := late(t, objecttest.Start(t), func(r guardtest.Resource) {
			if err := r.Write(guardtest.Under(t, 9), value); err != nil {
				t.Fatal(err)
			}
		})
		want := fence.StaleError{Resource: r.Name, Token: 8, Floor: 9}
		if stale, ok := errors.AsType[*fence.StaleError](err); !ok || *stale != want {
			t.Errorf("the late write: %v, want %v", err, &want)
		}
		if got, err := r.Read(); got != value || err != nil {
			t.Errorf("the object has %q, %v, want %q", got, err, value)
		}
	}
}

// race: of many holders at once the one with the greatest token has the last word.
func race(t *testing.T) {
	r := object(t, objecttest.Start(t), "race")
	var all sync.WaitGroup
	for token := range int64(8) {
		all.Go(func() { // ends with its write
			if err := r.Write(guardtest.Under(t, token+1), fmt.Sprint(token+1)); err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := r.Read(); got != "8" || err != nil {
		t.Errorf("the object has %q, %v, want that of the greatest token", got, err)
	}
}

// mutants: a guard without one of its parts does not pass, nor does a server that
// overlooks the conditions.
func mutants(t *testing.T) {
	s := objecttest.Start(t)
	for name, brk := range map[string]func() func(){
		"no comparison": func() func() {
			return fenceobject.Break(func(fence.Fence, int64) bool { return false }, nil)
		},
		"refuses the same": func() func() {
			return fenceobject.Break(func(f fence.Fence, floor int64) bool { return f.Token <= floor }, nil)
		},
		"stores the token": func() func() {
			return fenceobject.Break(nil, func(f fence.Fence, floor int64) int64 { return max(f.Token, floor) })
		},
		"lowers the floor": func() func() {
			return fenceobject.Break(nil, func(f fence.Fence, _ int64) int64 { return f.Floor })
		},
	} {
		mend := brk()
		err := guardtest.Run(t.Context(), object(t, s, name))
		mend()
		if err == nil {
			t.Errorf("%s: passes", name)
		}
		t.Log(name, ": ", err)
	}
	lax := objecttest.Start(t)
	lax.Lax = true
	if r, err := late(t, lax, func(r guardtest.Resource) { _ = r.Write(guardtest.Under(t, 9), "next") }); err != nil {
		t.Errorf("a server that overlooks conditions: %v", err)
	} else if got, _ := r.Read(); got != "late" {
		t.Errorf("a server that overlooks conditions: the object has %q; this test does not see the difference", got)
	}
}

// answer is what a server says to everything.
type answer struct {
	status     int
	etag, body string
}

// TestHTTP: what a server says that is no object.
func TestHTTP(t *testing.T) {
	var says atomic.Pointer[answer]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := says.Load()
		w.Header().Set("ETag", a.etag)
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body))
	}))
	t.Cleanup(server.Close)
	store := fenceobject.HTTP{URL: server.URL + "/", Client: server.Client()}
	body := fmt.Sprintf("%019d\nvalue", 7)
	says.Store(&answer{http.StatusOK, `"1"`, body})
	if data, ok, err := fenceobject.Get(t.Context(), store, "a"); string(data) != "value" || !ok || err != nil {
		t.Errorf("got %q, %v, %v", data, ok, err)
	}
	for want, a := range map[string]answer{
		"403":                        {http.StatusForbidden, `"1"`, body},
		`"" cannot be a condition`:   {http.StatusOK, "", body},
		`1\"" cannot be a condition`: {http.StatusOK, `W/"1"`, body},
		"without the guard":          {http.StatusOK, `"1"`, "value without a floor"},
		"has no floor in its first":  {http.StatusOK, `"1"`, "1\n"},
		"out of range":               {http.StatusOK, `"1"`, strings.Repeat("9", 19) + "\n"},
	} {
		says.Store(&a)
		_, _, err := fenceobject.Get(t.Context(), store, "a")
		err2 := fenceobject.Put(guardtest.Under(t, 8), store, "a", nil)
		for _, err := range []error{err, err2} {
			if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, fence.ErrStale) {
				t.Errorf("%+v: %v, want %q", a, err, want)
			}
		}
	}
	says.Store(&answer{status: http.StatusNotFound})
	if _, ok, err := fenceobject.Get(t.Context(), store, "a"); ok || err != nil {
		t.Errorf("nothing there: %v, %v", ok, err)
	}
	if err := fenceobject.Put(guardtest.Under(t, 8), store, "a", nil); err == nil || errors.Is(err, fenceobject.ErrChanged) {
		t.Errorf("no place to write to: %v, want no ErrChanged, by which it would be tried again", err)
	}
	for _, key := range []string{"", "a//b", "/a", "a/", ".", "a/../b"} {
		if err := fenceobject.Put(guardtest.Under(t, 8), store, key, nil); err == nil || !strings.Contains(err.Error(), "is not a path") {
			t.Errorf("%q: %v, want that it is not a path", key, err)
		}
	}
}

// A PUT that is answered by a redirection is not done because a GET was: a client makes
// one of it.
func TestRedirectedPut(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPut:
				http.Redirect(w, r, "/login", status)
			case r.URL.Path != "/login":
				http.NotFound(w, r)
			}
		}))
		defer server.Close()
		err := fenceobject.Put(guardtest.Under(t, 8), fenceobject.HTTP{URL: server.URL + "/"}, "a", []byte("value"))
		if err == nil || errors.Is(err, fenceobject.ErrChanged) || !strings.Contains(err.Error(), "redirected") {
			t.Errorf("%d: %v, want that it was redirected", status, err)
		}
	}
}

// changing is a store whose objects change all the time.
type changing struct{ *shelf }

func (changing) Put(context.Context, string, []byte, string) error { return fenceobject.ErrChanged }

// A write that its context has ended says so, whatever the cause.
func TestPutEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(guardtest.Under(t, 8))
		time.AfterFunc(time.Minute, func() { cancel(fencelock.ErrLost) })
		err := fenceobject.Put(ctx, changing{&shelf{}}, "a", nil)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, fencelock.ErrLost) || !errors.Is(err, fenceobject.ErrChanged) {
			t.Errorf("%v, want context.Canceled, ErrLost and ErrChanged", err)
		}
	})
}

// What Get would not read, Put does not write.
func TestLargePut(t *testing.T) {
	r := object(t, objecttest.Start(t), "large")
	if err := r.Write(guardtest.Under(t, 8), "small"); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(guardtest.Under(t, 8), strings.Repeat("x", 64<<20)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("an object that is too large: %v", err)
	}
	if got, err := r.Read(); got != "small" || err != nil {
		t.Errorf("the object has %d bytes, %v", len(got), err)
	}
}
