package filelock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

func request(name string) driver.Request {
	return driver.Request{Name: name, TTL: time.Minute}
}

func leaseOf(name string, g driver.Grant) driver.Lease {
	return driver.Lease{Name: name, Owner: g.Owner, Token: g.Token}
}

// acquire waits for the lock.
func acquire(t testing.TB, e driver.Engine, req driver.Request) driver.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req.Wait = true
	g, err := e.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("acquire %q: %v", req.Name, err)
	}
	return g
}

// hold acquires a name that nobody holds.
func hold(t testing.TB, e driver.Engine, name string) driver.Lease {
	t.Helper()
	g, err := e.Acquire(context.Background(), request(name))
	if err != nil {
		t.Fatalf("acquire %q: %v", name, err)
	}
	return leaseOf(name, g)
}

func release(t testing.TB, e driver.Engine, l driver.Lease) {
	t.Helper()
	if err := e.Release(context.Background(), l); err != nil {
		t.Errorf("release: %v", err)
	}
}

// queueUp starts a waiter and returns once it waits; its grant comes later.
func queueUp(t testing.TB, ctx context.Context, e driver.Engine, name string) <-chan driver.Grant {
	t.Helper()
	return queueUpFor(t, ctx, e, request(name))
}

// queueUpFor is queueUp for any request.
func queueUpFor(t testing.TB, ctx context.Context, e driver.Engine, req driver.Request) <-chan driver.Grant {
	t.Helper()
	joined, granted := make(chan struct{}, 1), make(chan driver.Grant, 1)
	req.Wait = true
	req.OnWait = func(driver.WaitInfo) { notify(joined) }
	go func() { // ends with ctx or the engine's process
		if g, err := e.Acquire(ctx, req); err == nil {
			granted <- g
		}
	}()
	await(t, joined, "waiting")
	return granted
}

// notify makes c ready to be received from, if it is not already.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await receives from c, or fails the test.
func await[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("nothing: %s", what)
	}
	return v
}

// oneLineWith reports whether an error is one line that contains all words.
func oneLineWith(err error, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return false
		}
	}
	return !strings.Contains(err.Error(), "\n")
}
