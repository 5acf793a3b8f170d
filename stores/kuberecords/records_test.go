//go:build unix

package kuberecords_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/kubetest"
	"github.com/fencelock/fencelock/stores/kuberecords"
)

// put writes a record, which must succeed.
func (s scene) put(r *kuberecords.Records, key, value, version string, ttl time.Duration) string {
	s.Helper()
	next, err := r.Swap(s.Context(), key, []byte(value), version, ttl)
	if err != nil {
		s.Fatalf("Swap of %q to %.20q: %v", key, value, err)
	}
	return next
}

// shows fails the test unless a record has this value.
func (s scene) shows(r *kuberecords.Records, key, value string) driver.Record {
	s.Helper()
	rec, err := r.Get(s.Context(), key)
	if err != nil || string(rec.Value) != value {
		s.Errorf("the record %q is %.20q (%v), want %q", key, rec.Value, err, value)
	}
	return rec
}

// TestNames: objects have names that people understand, and that kubectl accepts.
func TestNames(t *testing.T) {
	play(t, func(s scene) {
		locks := s.locks()
		for _, name := range []string{"billing", "fencelock-1", "Invoice 42", "ä", strings.Repeat("n", 254), "-", "a..b"} {
			s.acquire(locks, request(name))
			s.held(s.locks(), name, name)
		}
		list, err := locks.List(s.Context(), driver.Query{})
		if err != nil || len(list) != 7 || s.server.Object("shop", "billing") == nil {
			s.Errorf("the list has %d names (%v)", len(list), err)
		}
		other, err := kuberecords.New(&kuberecords.Config{Server: s.server.URL, Namespace: "shop", Client: s.server.Client(), Prefix: "other/"})
		s.ok(err)
		if _, err := other.Get(s.Context(), "other/billing"); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "billing") {
			s.Errorf("an object of another prefix: %v, want ErrConfig", err)
		}
	})
}

// TestDeleted: a version does not return if an object is deleted and created again.
func TestDeleted(t *testing.T) {
	play(t, func(s scene) {
		r := s.records()
		version := s.put(r, "fencelock.lock/x", `{"name":"x"}`, "", 0)
		s.server.Delete("shop", "x")
		for _, text := range []string{"x", "null", "{}"} {
			if _, err := r.Swap(s.Context(), "fencelock.lock/x", nil, text, 0); !errors.Is(err, driver.ErrConflict) {
				s.Errorf("Swap from %s: %v, want ErrConflict", text, err)
			}
		}
		if _, err := r.Swap(s.Context(), "fencelock.lock/x", nil, version, 0); !errors.Is(err, driver.ErrConflict) {
			s.Errorf("Swap of a deleted object: %v, want ErrConflict", err)
		}
		s.put(r, "fencelock.lock/x", `{"name":"x"}`, "", 0)
		if _, err := r.Swap(s.Context(), "fencelock.lock/x", nil, version, 0); !errors.Is(err, driver.ErrConflict) {
			s.Errorf("Swap of an object that was deleted and created again: %v, want ErrConflict", err)
		}
	})
}

// TestAwait: a watch survives its end and a compaction of the past, and reports a deletion.
func TestAwait(t *testing.T) {
	play(t, func(s scene) {
		r := s.records()
		first := s.put(r, "key", "one", "", 0)
		await := func(version string) <-chan driver.Record {
			done := make(chan driver.Record)
			go func() { // ends with the change
				rec, err := r.Await(s.Context(), "key", version)
				if err != nil {
					s.Errorf("Await: %v", err)
				}
				done <- rec
			}()
			time.Sleep(time.Second)
			return done
		}
		done := await(first)
		s.server.Kick()
		time.Sleep(5 * time.Minute)
		s.server.Compact()
		time.Sleep(5 * time.Minute)
		second := s.put(r, "key", "two", first, 0)
		if rec := <-done; rec.Version != second {
			s.Errorf("the record is %+v", rec)
		}
		s.server.Compact()
		if rec := <-await(first); rec.Version != second {
			s.Errorf("from a version that was compacted, the record is %+v", rec)
		}
		done = await(second)
		name := ""
		for _, o := range s.server.Names() {
			name = o
		}
		s.server.Delete("shop", name)
		if rec := <-done; rec.Version != "" {
			s.Errorf("the record of a deleted object is %+v", rec)
		}
	})
}

// TestEndedWatches: a waiter does not flood a server that ends each watch at once, and still finds a
// change.
func TestEndedWatches(t *testing.T) {
	play(t, func(s scene) {
		r := s.records()
		version := s.put(r, "key", "before", "", 0)
		var watches atomic.Int64
		s.server.Intercept(func(_ http.ResponseWriter, q *http.Request, _ func()) bool {
			if q.URL.Query().Has("watch") {
				watches.Add(1)
			}
			return q.URL.Query().Has("watch") // with an empty answer
		})
		found := make(chan driver.Record)
		go func() { // ends with the change
			rec, err := r.Await(s.Context(), "key", version)
			if err != nil {
				s.Error(err)
			}
			found <- rec
		}()
		time.Sleep(time.Minute)
		if n := watches.Load(); n < 20 || n > 120 {
			s.Errorf("%d watches in a minute", n)
		}
		s.put(r, "key", "after", version, 0)
		changed := time.Now()
		if rec := <-found; string(rec.Value) != "after" || time.Since(changed) > 3*time.Second {
			s.Errorf("the record is %+v after %v", rec, time.Since(changed))
		}
	})
}

// TestLate: a write that arrives after its call has ended changes nothing if another writer came
// first, and no call waits for it.
func TestLate(t *testing.T) {
	play(t, func(s scene) {
		r, other := s.records(), s.records()
		version := s.put(r, "key", "before", "", 0)
		deliver, delivered := make(chan struct{}), make(chan struct{})
		s.server.Intercept(func(_ http.ResponseWriter, q *http.Request, serve func()) bool {
			if q.Method == http.MethodPatch {
				s.server.Intercept(nil)
				<-deliver
				serve()
				close(delivered)
			}
			return q.Method == http.MethodPatch
		})
		begun := time.Now()
		_, err := r.Swap(s.Context(), "key", []byte("late"), version, 0)
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) || time.Since(begun) != 5*time.Second {
			s.Errorf("after %v: %v, want ErrUnavailable after 5s", time.Since(begun), err)
		}
		s.put(other, "key", "next", version, 0)
		close(deliver)
		<-delivered
		s.shows(r, "key", "next")
	})
}

// TestLost: a write whose answer is lost is not repeated.
func TestLost(t *testing.T) {
	play(t, func(s scene) {
		r := s.records()
		s.server.Intercept(func(_ http.ResponseWriter, q *http.Request, serve func()) bool {
			if q.Method == http.MethodPost {
				s.server.Intercept(nil)
				serve()
				panic(http.ErrAbortHandler)
			}
			return false
		})
		if _, err := r.Swap(s.Context(), "key", []byte("value"), "", 0); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) {
			s.Errorf("got %v, want ErrUnavailable", err)
		}
		s.shows(r, "key", "value")
	})
}

// TestStoresClock: records expire by the store's clock, whatever that of this host is.
func TestStoresClock(t *testing.T) {
	play(t, func(s scene) {
		s.server.SetClock(-time.Hour)
		r := s.records()
		version := s.put(r, "key", "value", "", time.Minute)
		time.Sleep(59 * time.Second)
		s.shows(r, "key", "value")
		time.Sleep(3 * time.Second)
		s.shows(r, "key", "")
		if _, err := r.Swap(s.Context(), "key", nil, version, 0); !errors.Is(err, driver.ErrConflict) {
			s.Errorf("Swap of an expired record: %v, want ErrConflict", err)
		}
		earliest, latest, err := r.Clock(s.Context())
		if err != nil || latest.Sub(earliest) != time.Second || time.Until(latest) > -59*time.Minute {
			s.Errorf("Clock: %v to %v (%v)", earliest, latest, err)
		}
	})
}

// TestSweep: objects of expired records go, except those that others have created or hold.
func TestSweep(t *testing.T) {
	play(t, func(s scene) {
		s.server.Put("shop", "theirs", map[string]any{})
		locks := s.locks()
		for _, name := range []string{"a", "b", "C", "theirs", "led"} {
			g := s.acquire(locks, request(name))
			s.ok(locks.Release(s.Context(), leaseOf(name, g)))
		}
		s.elected("led", "pod-1", 15)
		time.Sleep(time.Hour)
		s.acquire(locks, request("d"))
		time.Sleep(2 * time.Minute)
		s.acquire(locks, request("e"))
		names := strings.Join(s.server.Names(), " ")
		if names != "d e led theirs" {
			s.Errorf("the objects are %s", names)
		}
	})
}

// TestSize: a value that does not fit is refused with its size, before it is sent.
func TestSize(t *testing.T) {
	play(t, func(s scene) {
		r := s.records()
		for _, value := range []string{strings.Repeat("x", kuberecords.MaxValue+1), strings.Repeat("\xff", kuberecords.MaxValue*3/4)} {
			if _, err := r.Swap(s.Context(), "key", []byte(value), "", 0); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "258048") {
				s.Errorf("got %v, want ErrInvalid with the limit", err)
			}
		}
		long := strings.Repeat("ä", 256)
		s.put(r, long, strings.Repeat("x", kuberecords.MaxValue), "", 0)
		s.put(r, "key", strings.Repeat("\xff", kuberecords.MaxValue*3/4-6), "", 0)
	})
}

// TestFailures: each error says what to do.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		kind error
		text string
	}{
		"forbidden":   {http.StatusForbidden, driver.ErrConfig, "get, list, watch, create and patch"},
		"token":       {http.StatusUnauthorized, driver.ErrConfig, "get, list, watch"},
		"bad request": {http.StatusBadRequest, driver.ErrConfig, "400"},
		"busy":        {http.StatusTooManyRequests, driver.ErrUnavailable, "429"},
		"etcd":        {http.StatusInternalServerError, driver.ErrUnavailable, "500"},
		"timeout":     {http.StatusGatewayTimeout, driver.ErrUnavailable, "504"},
	} {
		play(t, func(s scene) {
			r := s.records()
			s.server.Intercept(func(w http.ResponseWriter, _ *http.Request, _ func()) bool {
				w.WriteHeader(c.code)
				_, _ = w.Write([]byte("no JSON"))
				return true
			})
			_, get := r.Get(s.Context(), "key")
			_, swap := r.Swap(s.Context(), "key", nil, "", 0)
			_, list := r.List(s.Context(), "")
			_, await := r.Await(s.Context(), "key", "")
			_, _, clock := r.Clock(s.Context())
			for call, err := range map[string]error{"Get": get, "Swap": swap, "List": list, "Await": await, "Clock": clock} {
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
					s.Errorf("%s, %s: %v, want %v with %q", name, call, err, c.kind, c.text)
				}
			}
		})
	}
}

// TestRedirect: a redirect is not followed. A client of HTTP would repeat a PATCH as a GET, whose
// answer looks like that of a write.
func TestRedirect(t *testing.T) {
	play(t, func(s scene) {
		r := s.records()
		version := s.put(r, "fencelock.lock/billing", `{"last":1}`, "", 0)
		s.server.Intercept(func(w http.ResponseWriter, r *http.Request, _ func()) bool {
			if r.Method == http.MethodGet {
				return false
			}
			http.Redirect(w, r, r.URL.Path, http.StatusMovedPermanently)
			return true
		})
		if next, err := r.Swap(s.Context(), "fencelock.lock/billing", []byte(`{"last":2}`), version, 0); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "redirect") {
			s.Errorf("Swap returns %q, %v, want ErrConfig", next, err)
		}
		s.shows(r, "fencelock.lock/billing", `{"last":1}`)
	})
}

// TestOtherAnswer: an answer to a write with an object that lacks the write is no success.
func TestOtherAnswer(t *testing.T) {
	play(t, func(s scene) {
		r := s.records()
		version := s.put(r, "fencelock.lock/billing", `{"last":1}`, "", 0)
		s.server.Intercept(func(w http.ResponseWriter, r *http.Request, _ func()) bool {
			if r.Method == http.MethodPatch {
				_ = json.NewEncoder(w).Encode(s.server.Object("shop", "billing")) // the client may have gone
			}
			return r.Method == http.MethodPatch
		})
		if next, err := r.Swap(s.Context(), "fencelock.lock/billing", []byte(`{"last":2}`), version, 0); !errors.Is(err, driver.ErrUnavailable) {
			s.Errorf("Swap returns %q, %v, want ErrUnavailable", next, err)
		}
	})
}

// TestNotFound: a page that is not found is no answer about an object. A proxy without servers may
// answer so for a moment, and a holder would find its lock lost.
func TestNotFound(t *testing.T) {
	play(t, func(s scene) {
		r := s.records()
		s.put(r, "key", "value", "", 0)
		s.server.Intercept(func(w http.ResponseWriter, r *http.Request, _ func()) bool {
			http.NotFound(w, r)
			return true
		})
		if rec, err := r.Get(s.Context(), "key"); !errors.Is(err, driver.ErrUnavailable) {
			s.Errorf("Get returns %+v, %v, want ErrUnavailable", rec, err)
		}
	})
}

// TestStarting: an API server that starts refuses all accounts for a moment. That ends no wait and no
// lock, but an account that has lost its rights is reported.
func TestStarting(t *testing.T) {
	play(t, func(s scene) {
		r, locks := s.records(), s.locks()
		refuse := func(w http.ResponseWriter, _ *http.Request, _ func()) bool {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		version := s.put(r, "key", "value", "", 0)
		g := s.acquire(locks, request("a"))
		done := make(chan driver.Grant)
		go func() { done <- s.acquire(s.locks(), waiting("a")) }() // ends when it is granted
		time.Sleep(time.Second)
		s.server.Intercept(refuse)
		s.server.Kick() // so that the waiter watches again
		begun := time.Now()
		for time.Since(begun) < 9*time.Second {
			if _, err := r.Get(s.Context(), "key"); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "403") {
				s.Fatalf("after %v: %v, want ErrUnavailable", time.Since(begun), err)
			}
			time.Sleep(time.Second)
			if time.Since(begun) == 4*time.Second { // so that the lease does not end
				s.server.Intercept(nil)
				s.ok(locks.Renew(s.Context(), []driver.Lease{leaseOf("a", g)})[0])
				s.server.Intercept(refuse)
			}
		}
		s.server.Intercept(nil)
		s.ok(locks.Release(s.Context(), leaseOf("a", g)))
		<-done
		version = s.put(r, "key", "next", version, 0)
		s.server.Intercept(refuse)
		_, _ = r.Swap(s.Context(), "key", nil, version, 0) // refused, as when a server starts
		time.Sleep(10 * time.Second)
		if _, err := r.Swap(s.Context(), "key", nil, version, 0); !errors.Is(err, driver.ErrConfig) {
			s.Errorf("after ten seconds: %v, want ErrConfig", err)
		}
	})
}

// TestMissingRight: an account that lacks a right is told so at once, and an account that loses one
// after ten seconds, even if the server serves its other requests.
func TestMissingRight(t *testing.T) {
	play(t, func(s scene) {
		r, missing := s.records(), http.MethodPost
		s.server.Intercept(func(w http.ResponseWriter, r *http.Request, _ func()) bool {
			if r.Method == missing {
				w.WriteHeader(http.StatusForbidden)
			}
			return r.Method == missing
		})
		s.shows(r, "key", "")
		if _, err := r.Swap(s.Context(), "key", []byte("value"), "", 0); !errors.Is(err, driver.ErrConfig) {
			s.Errorf("without create: %v, want ErrConfig", err)
		}
		missing = http.MethodPatch
		if _, err := s.locks().Acquire(s.Context(), request("a")); !errors.Is(err, driver.ErrConfig) {
			s.Errorf("a lock that could not be released, without patch: %v, want ErrConfig", err)
		}
		if _, err := s.records().Swap(s.Context(), "key", []byte("value"), "", 0); !errors.Is(err, driver.ErrConfig) {
			s.Errorf("without patch: %v, want ErrConfig", err)
		}
		s.shows(r, "key", "")
		missing = ""
		version := s.put(r, "key", "value", "", 0)
		missing = http.MethodPatch
		for begun := time.Now(); time.Since(begun) < 12*time.Second; time.Sleep(time.Second) {
			s.shows(r, "key", "value")
			_, err := r.Swap(s.Context(), "key", nil, version, 0)
			if lost := time.Since(begun) >= 10*time.Second; errors.Is(err, driver.ErrConfig) != lost || errors.Is(err, driver.ErrUnavailable) == lost {
				s.Errorf("%v after patch was taken away: %v", time.Since(begun), err)
			}
		}
	})
}

// TestNotTLS: the answer of a server that expects TLS is reported.
func TestNotTLS(t *testing.T) {
	server := kubetest.StartTLS(t)
	r, err := kuberecords.New(&kuberecords.Config{Server: "http" + strings.TrimPrefix(server.URL, "https"), Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(t.Context(), "key"); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "must begin with https") {
		t.Errorf("Get returns %v, want ErrConfig and the beginning of the URL", err)
	}
}

// TestInit: Init leaves no object, and detects a server that ignores the resourceVersion.
func TestInit(t *testing.T) {
	play(t, func(s scene) {
		s.ok(s.records().Init(s.Context()))
		s.server.Lax = true
		if err := s.records().Init(s.Context()); !errors.Is(err, driver.ErrConfig) {
			s.Errorf("without conditions: %v, want ErrConfig", err)
		}
		if names := s.server.Names(); len(names) > 0 {
			s.Errorf("Init leaves %v", names)
		}
	})
}

// TestToken: the token is read again for each request. Without a server, the environment of a pod is
// needed.
func TestToken(t *testing.T) {
	play(t, func(s scene) {
		s.server.Token = "second"
		path := filepath.Join(s.TempDir(), "token")
		r, err := kuberecords.New(&kuberecords.Config{Server: s.server.URL, Namespace: "shop", Client: s.server.Client(), Token: kuberecords.TokenFile(path)})
		s.ok(err)
		if _, err := r.Get(s.Context(), "key"); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), path) {
			s.Errorf("without a file: %v, want ErrConfig", err)
		}
		s.ok(os.WriteFile(path, []byte("first\n"), 0o600))
		if _, err := r.Get(s.Context(), "key"); !errors.Is(err, driver.ErrConfig) {
			s.Errorf("with an old token: %v, want ErrConfig", err)
		}
		s.ok(os.WriteFile(path, []byte("second\n"), 0o600))
		s.put(r, "key", "value", "", 0)
	})
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := kuberecords.New(nil); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("outside of a pod: %v, want ErrConfig", err)
	}
}

// TestStalled: if the connection over which all requests go is dead, later requests use another one.
func TestStalled(t *testing.T) {
	t.Parallel()
	server := kubetest.StartTLS(t)
	proxy, err := faults.NewProxy(strings.TrimPrefix(server.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	ca := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := kuberecords.New(&kuberecords.Config{Server: "https://" + proxy.Addr(), CAFile: ca, Namespace: "shop", Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Repeat([]byte("x"), 100)
	version, err := r.Swap(t.Context(), "key", value, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range proxy.Links() {
		l.Stall(faults.Both)
	}
	failed := 0
	for end := time.Now().Add(time.Minute); ; failed++ {
		if version, err = r.Swap(t.Context(), "key", value, version, 0); err == nil {
			break
		}
		late := errors.Is(err, driver.ErrConflict) // an earlier one has arrived
		if !errors.Is(err, driver.ErrUnavailable) && !late || time.Now().After(end) {
			t.Fatalf("after %d failures: %v", failed, err)
		}
		rec, err := r.Get(context.WithoutCancel(t.Context()), "key")
		if err == nil {
			version = rec.Version
		}
	}
	if failed == 0 {
		t.Error("no request has used the connection that was dead")
	}
}
