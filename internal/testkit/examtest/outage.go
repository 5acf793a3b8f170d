package examtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Call is one kind of call that is made while a server does not answer.
type Call struct {
	Name  string
	Limit time.Duration // it ends within this time of its own start
	Make  func(ctx context.Context, i int) error
	Bound bool // the limit is that of its context; otherwise the context has none
}

// Calls returns the calls of an engine that has a lease: those that have a limit of their own, and those
// that end with their context.
func Calls(e driver.Engine, lease driver.Lease, try time.Duration) []Call {
	request := func(i int) driver.Request { return driver.Request{Name: fmt.Sprint("n", i/3), TTL: 30 * time.Second} }
	const bound = 3 * time.Second
	calls := []Call{
		{"a try", try, func(ctx context.Context, i int) error {
			_, err := e.Acquire(ctx, request(i))
			return err
		}, false},
		{"a wait", bound, func(ctx context.Context, i int) error {
			req := request(i)
			req.Wait = true
			_, err := e.Acquire(ctx, req)
			return err
		}, true},
		{"a renewal", bound, func(ctx context.Context, _ int) error {
			return e.Renew(ctx, []driver.Lease{lease})[0]
		}, true},
	}
	if b, ok := e.(driver.Breaker); ok {
		calls = append(calls, Call{"a break", bound, func(ctx context.Context, i int) error {
			_, err := b.Break(ctx, request(i).Name, "outage")
			return err
		}, true})
	}
	if r, ok := e.(driver.Resizer); ok {
		calls = append(calls, Call{"a change of a limit", bound, func(ctx context.Context, i int) error {
			return r.Resize(ctx, request(i).Name, 5)
		}, true})
	}
	return calls
}

// Held acquires a lock for Calls.
func Held(t testing.TB, e driver.Engine) driver.Lease {
	t.Helper()
	req := driver.Request{Name: "before", TTL: time.Minute}
	g, err := e.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, TTL: req.TTL}
}

// Lists returns the calls of an engine that only read, which end within a limit of their own.
func Lists(e driver.Lister, limit time.Duration) []Call {
	return []Call{
		{"a list", limit, func(ctx context.Context, _ int) error {
			_, err := e.List(ctx, driver.Query{Prefix: "n"})
			return err
		}, false},
		{"a list of one name", limit, func(ctx context.Context, _ int) error {
			_, err := e.List(ctx, driver.Query{Prefix: "n", Exact: true})
			return err
		}, false},
	}
}

// RecordCalls returns the calls of records, which end within a limit of their own.
func RecordCalls(r driver.Records, limit time.Duration) []Call {
	return []Call{
		{"Get", limit, func(ctx context.Context, i int) error {
			_, err := r.Get(ctx, fmt.Sprint("r", i))
			return err
		}, false},
		{"Swap", limit, func(ctx context.Context, i int) error {
			_, err := r.Swap(ctx, fmt.Sprint("r", i), []byte("v"), "", time.Minute)
			return err
		}, false},
		{"List", limit, func(ctx context.Context, _ int) error {
			_, err := r.List(ctx, "r")
			return err
		}, false},
		{"Clock", limit, func(ctx context.Context, _ int) error {
			_, _, err := r.Clock(ctx)
			return err
		}, false},
	}
}

// slack is how much later a call may end on a machine that has no time for it. Calls that wait for one
// another are late by a multiple of their limits.
const slack = 5 * time.Second

// Outage makes a hundred concurrent calls while the server does not answer. Each must end within its
// limit of its own start, with ErrUnavailable. No call waits for others.
func Outage(t testing.TB, calls []Call) {
	t.Helper()
	const n = 100
	var mu sync.Mutex // guards longest
	longest := map[string]time.Duration{}
	var all sync.WaitGroup
	for i := range n {
		c := calls[i%len(calls)]
		all.Go(func() { // ends with its limit
			ctx := context.Background()
			if c.Bound {
				limited, cancel := context.WithTimeout(ctx, c.Limit)
				defer cancel()
				ctx = limited
			}
			begun := time.Now()
			err := c.Make(ctx, i)
			took := time.Since(begun)
			if !errors.Is(err, driver.ErrUnavailable) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
				t.Errorf("%s: %v", c.Name, err)
			}
			if took > c.Limit+slack {
				t.Errorf("%s ended after %v: its limit is %v (%v)", c.Name, took, c.Limit, err)
			}
			mu.Lock()
			defer mu.Unlock()
			longest[c.Name] = max(longest[c.Name], took)
		})
	}
	all.Wait()
	for _, c := range calls {
		t.Logf("%s ended after %v at the latest, its limit is %v", c.Name, longest[c.Name].Round(time.Millisecond), c.Limit)
	}
}
