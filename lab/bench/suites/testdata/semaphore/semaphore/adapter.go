// Package semaphore has the API of golang.org/x/sync/semaphore on fencelock's semaphore on Redis, so
// that the tests of x/sync run on fencelock. It is for nothing else.
package semaphore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/fencelock/fencelock/semaphore"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// locks are on the server that the suite has started.
var locks = sync.OnceValue(func() *fencelock.Locker {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	return fencelock.New(goredis.New(client, nil), nil).With(fencelock.Options{TTL: 10 * time.Second})
})

// Weighted is a semaphore. Weights are released by number here and by permit in fencelock, so
// permits are kept in the order of their acquisition.
type Weighted struct {
	size int64
	sem  *semaphore.Semaphore

	mu      sync.Mutex
	permits []permit // guarded by mu
}

type permit struct {
	lock   *fencelock.Lock
	weight int64
}

// NewWeighted returns a semaphore with a name of its own.
func NewWeighted(n int64) *Weighted {
	if n < 0 {
		panic("a negative size")
	}
	w := &Weighted{size: n}
	if n > 0 {
		w.sem = semaphore.New(locks(), uuid.NewString(), int(n))
	}
	return w
}

// Acquire takes n units. fencelock refuses a weight above the size, for which x/sync waits until
// ctx ends.
func (w *Weighted) Acquire(ctx context.Context, n int64) error {
	check(n)
	if n == 0 {
		return ctx.Err()
	}
	if n > w.size {
		<-ctx.Done()
		return ctx.Err()
	}
	l, err := w.sem.Acquire(ctx, int(n))
	if err != nil {
		return err
	}
	w.keep(l, n)
	return nil
}

// TryAcquire takes n units if they are free.
func (w *Weighted) TryAcquire(n int64) bool {
	check(n)
	if n == 0 {
		return true
	}
	if n > w.size {
		return false
	}
	l, err := w.sem.TryAcquire(context.Background(), int(n))
	if errors.Is(err, fencelock.ErrHeld) {
		return false
	}
	if err != nil {
		panic(err)
	}
	w.keep(l, n)
	return true
}

func (w *Weighted) keep(l *fencelock.Lock, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.permits = append(w.permits, permit{l, n})
}

// Release releases permits of n units together.
func (w *Weighted) Release(n int64) {
	check(n)
	for _, p := range w.take(n) {
		if err := p.lock.Release(); err != nil {
			panic(err)
		}
	}
}

// take removes permits of n units, those of just n units first.
func (w *Weighted) take(n int64) (taken []permit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for exact := range 2 {
		for i := 0; i < len(w.permits) && n > 0; {
			if p := w.permits[i]; p.weight == n || exact == 1 && p.weight < n {
				taken, n = append(taken, p), n-p.weight
				w.permits = append(w.permits[:i], w.permits[i+1:]...)
				continue
			}
			i++
		}
	}
	if n > 0 {
		panic(fmt.Sprintf("%d units more than are held", n))
	}
	return taken
}

func check(n int64) {
	if n < 0 {
		panic("a negative weight")
	}
}
