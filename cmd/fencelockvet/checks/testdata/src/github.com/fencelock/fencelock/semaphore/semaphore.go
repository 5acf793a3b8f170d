// Package semaphore has the shape of the library's.
package semaphore

import (
	"context"

	"github.com/fencelock/fencelock"
)

type Semaphore struct{}

func (s *Semaphore) Do(ctx context.Context, weight int, fn func(ctx context.Context) error) error {
	return fn(ctx)
}
func (s *Semaphore) Acquire(ctx context.Context, weight int) (*fencelock.Lock, error) {
	return nil, nil
}
func (s *Semaphore) TryAcquire(ctx context.Context, weight int) (*fencelock.Lock, error) {
	return nil, nil
}
