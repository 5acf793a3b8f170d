// Package idempotent has the shape of the library's.
package idempotent

import (
	"context"
	"net/http"
)

type Store struct{}

func Do[T any](ctx context.Context, s *Store, key string, fn func(ctx context.Context) (T, error)) (value T, err error) {
	return fn(ctx)
}

type HTTP struct {
	Detach bool
}

func (s *Store) Handler(next http.Handler, cfg *HTTP) http.Handler { return next }

func SharedKeys(*http.Request) string { return "*" }
