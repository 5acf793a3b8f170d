package redlock_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redlock"
)

// listed returns the names that a listing shows.
func listed(t *testing.T, e *redlock.Engine, q driver.Query) (names []string) {
	t.Helper()
	list, err := e.List(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

// ran reports whether the server has run a command since the last CONFIG RESETSTAT.
func ran(t *testing.T, r *redistest.Redis, command string) bool {
	return strings.Contains(r.Do(t, "INFO", "commandstats"), "cmdstat_"+command+":")
}

// TestListReadsAnIndex: a listing finds what is held and waited for, and looks through
// all keys only if it is asked to, or may not read the index.
func TestListReadsAnIndex(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e, other := open(t, w.addrs(), redlock.Config{}), open(t, w.addrs(), redlock.Config{})
	_, l := take(t, e, "held", long)
	for _, r := range w {
		r.Do(t, "SET", "lock:foreign", "theirs", "PX", "600000")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // ends with cancel
		defer close(done)
		_, _ = other.Acquire(ctx, driver.Request{Name: "foreign", TTL: long, Wait: true})
	}()
	t.Cleanup(func() { cancel(); <-done })
	eventually(t, "what is held and waited for", func() bool {
		return slices.Equal(listed(t, other, driver.Query{}), []string{"foreign", "held"})
	})
	for _, r := range w {
		r.Do(t, "CONFIG", "RESETSTAT")
	}
	if got := listed(t, other, driver.Query{Prefix: "he"}); !slices.Equal(got, []string{"held"}) {
		t.Errorf("names that begin with he: %q", got)
	}
	for _, r := range w {
		if ran(t, r, "scan") || !ran(t, r, "zscan") {
			t.Errorf("a listing looked through the keys of %s: %s", r.Addr(), r.Do(t, "INFO", "commandstats"))
		}
	}

	// A node that has missed the notes shows what the others know of.
	w[0].Do(t, "DEL", "fencelock:names")
	w[1].Do(t, "DEL", "fencelock:names")
	if got := listed(t, other, driver.Query{Prefix: "held"}); !slices.Equal(got, []string{"held"}) {
		t.Errorf("with one index of three: %q", got)
	}

	// What is free leaves the index with the next look.
	cancel()
	<-done
	release(t, e, l)
	for _, r := range w {
		r.Do(t, "DEL", "lock:foreign")
		eventually(t, "an empty index", func() bool {
			listed(t, other, driver.Query{})
			return r.Do(t, "ZCARD", "fencelock:names") == "0"
		})
	}

	// Nobody has noted this one.
	for _, r := range w {
		r.Do(t, "SET", "lock:plain", "theirs", "PX", "600000")
	}
	if got := listed(t, other, driver.Query{}); len(got) > 0 {
		t.Errorf("without a look through all keys: %q", got)
	}
	if got := listed(t, other, driver.Query{Scan: true}); !slices.Equal(got, []string{"plain"}) {
		t.Errorf("by a look through all keys: %q", got)
	}
	for _, r := range w {
		r.Do(t, "ACL", "SETUSER", "default", "-zscan")
	}
	if got := listed(t, other, driver.Query{}); !slices.Equal(got, []string{"plain"}) {
		t.Errorf("without the right to the index: %q", got)
	}
}

// TestIndexOfMinimumHolds: a name that is closed stays in the index, though its holder
// has gone; and a renewal notes again what a node has lost.
func TestIndexOfMinimumHolds(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e, other := open(t, w.addrs(), redlock.Config{}), open(t, w.addrs(), redlock.Config{})
	req := driver.Request{Name: "closed", TTL: long, MinHold: long}
	g, err := e.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	release(t, e, leaseOf(req.Name, g, long))
	_, l := take(t, e, "held", long)
	eventually(t, "both", func() bool { return slices.Equal(listed(t, other, driver.Query{}), []string{"closed", "held"}) })
	for _, r := range w {
		r.Do(t, "DEL", "fencelock:names")
	}
	eventually(t, "what is renewed", func() bool {
		for _, r := range w {
			r.Do(t, "ZREM", "fencelock:names", "closed") // a slow node may note it only now
		}
		if err := e.Renew(t.Context(), []driver.Lease{l})[0]; err != nil {
			t.Fatal(err)
		}
		return slices.Equal(listed(t, other, driver.Query{}), []string{"held"})
	})
}

// TestShortLocksAreNotNoted: a lock that is released at once costs the nodes nothing
// for the index.
func TestShortLocksAreNotNoted(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{})
	for range 100 { // on a busy machine none is short
		_, l := retryAcquire(t, e, "short", long)
		release(t, e, l)
		_, l = retryAcquire(t, e, "long", long)
		eventually(t, "a note of what is held", func() bool { return w[0].Do(t, "ZSCORE", "fencelock:names", "long") != "" })
		release(t, e, l)
		if w[0].Do(t, "ZSCORE", "fencelock:names", "short") == "" {
			return
		}
		w[0].Do(t, "DEL", "fencelock:names")
	}
	t.Error("each short lock was noted")
}
