// Package idempotent has the shape of the library's.
package idempotent

import "context"

type Store struct{}

func Do[T any](ctx context.Context, s *Store, key string, fn func(ctx context.Context) (T, error)) (value T, err error) {
	return fn(ctx)
}
