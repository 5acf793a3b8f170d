//go:build unix

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

// TestCancelledCallsLeaveNoKeyClosed: calls and requests whose contexts end at random
// moments, on the engines that keep records: each key can be used again soon, and not only
// after a lease. With FENCELOCK_SLOW set, thousands of them.
func TestCancelledCallsLeaveNoKeyClosed(t *testing.T) {
	all := engines.All(30 * time.Second)
	delete(all, "redlock") // which keeps none
	count := 200
	if os.Getenv("FENCELOCK_SLOW") != "" {
		count = 5000
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := all[name](t)()
			s := idempotent.New(fencelock.New(e, nil), e.(driver.RecordKeeper).Records(), nil)
			c := &cancelled{store: s, handler: s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Context().Err() != nil { // nothing is done for a client that has gone
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}), nil)}
			c.most = 2 * max(c.whole(t), time.Millisecond)
			var left atomic.Int64
			left.Store(int64(count))
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() { // ends with the count
					for i := left.Add(-1); i >= 0; i = left.Add(-1) {
						c.call(t, i)
					}
				})
			}
			callers.Wait()
			time.Sleep(2 * time.Second)
			closed := 0
			for i := range int64(count) {
				if !c.again(t, i) {
					closed++
				}
			}
			t.Logf("%d calls, %d cancelled within %v, %d keys closed", count, c.gone.Load(), c.most, closed)
			if closed > 0 {
				t.Errorf("%d keys of %d are closed without a run", closed, count)
			}
			if c.gone.Load() == 0 {
				t.Error("no call was cancelled")
			}
		})
	}
}

// cancelled makes calls and requests that are cancelled: those with an even number are requests.
type cancelled struct {
	store   *idempotent.Store
	handler http.Handler
	most    time.Duration // no context lasts longer
	gone    atomic.Int64  // calls whose context ended
}

// whole is how long a call takes that is not cancelled.
func (c *cancelled) whole(t *testing.T) time.Duration {
	begun := time.Now()
	for i := range 5 {
		if _, err := idempotent.Do(t.Context(), c.store, fmt.Sprint("whole", i), counted(new(atomic.Int64))); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(begun) / 5
}

func (c *cancelled) call(t *testing.T, i int64) {
	ctx, cancel := context.WithTimeout(t.Context(), rand.N(c.most))
	defer cancel()
	if i%2 == 0 {
		c.handler.ServeHTTP(httptest.NewRecorder(), numbered(ctx, i))
	} else {
		_, _ = idempotent.Do(ctx, c.store, fmt.Sprint("key", i), func(ctx context.Context) (int64, error) { return 1, ctx.Err() })
	}
	if ctx.Err() != nil {
		c.gone.Add(1)
	}
}

// again uses the key once more, and reports whether it could be.
func (c *cancelled) again(t *testing.T, i int64) bool {
	if i%2 == 0 {
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, numbered(t.Context(), i))
		return w.Code == http.StatusOK
	}
	got, err := idempotent.Do(t.Context(), c.store.With(idempotent.Options{NoWait: true}), fmt.Sprint("key", i), counted(new(atomic.Int64)))
	if err != nil && !errors.Is(err, idempotent.ErrInProgress) {
		t.Errorf("key %d: %v", i, err)
	}
	return err == nil && got == 1
}

// numbered is a request with the key of that number.
func numbered(ctx context.Context, i int64) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("tea"))
	r.Header.Set("Idempotency-Key", fmt.Sprint("request", i))
	r.Header.Set("Authorization", "alice")
	return r
}
