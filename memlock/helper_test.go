package memlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

const ttl = time.Hour

// bubble runs a test in virtual time on a new store with three clients.
func bubble(t *testing.T, f func(t *testing.T, a, b, c *memlock.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := memlock.New(nil)
		f(t, a, a.Client(), a.Client())
	})
}

func request(name string) driver.Request { return driver.Request{Name: name, TTL: ttl} }

func leaseOf(name string, g driver.Grant) driver.Lease {
	return driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: g.TTL}
}

// take acquires without a wait, or fails the test.
func take(t *testing.T, e *memlock.Engine, req driver.Request) driver.Lease {
	t.Helper()
	g, err := e.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return leaseOf(req.Name, g)
}

func renew(e *memlock.Engine, l driver.Lease) error {
	return e.Renew(context.Background(), []driver.Lease{l})[0]
}

// waiting is an Acquire that runs in a goroutine, which ends when it returns.
type waiting struct {
	done   chan struct{}
	cancel context.CancelFunc
	grant  driver.Grant
	err    error
	at     time.Time // when it returned
}

// wait starts an Acquire that waits, and returns once it is in the queue.
func wait(e *memlock.Engine, req driver.Request) *waiting {
	req.Wait = true
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiting{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(w.done)
		w.grant, w.err = e.Acquire(ctx, req)
		w.at = time.Now()
	}()
	synctest.Wait()
	return w
}

// answered reports whether the Acquire has returned.
func (w *waiting) answered() bool {
	synctest.Wait()
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// want fails the test unless err is what it should be.
func want(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("got error %v, want %v", err, target)
	}
}

// only returns the one status List knows of, nil for none.
func only(t *testing.T, e *memlock.Engine) *driver.Status {
	t.Helper()
	list, err := e.List(t.Context(), driver.Query{})
	if err != nil || len(list) > 1 {
		t.Fatalf("List: %v, %v", list, err)
	}
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}
