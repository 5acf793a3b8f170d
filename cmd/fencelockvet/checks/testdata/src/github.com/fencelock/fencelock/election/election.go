// Package election has the shape of the library's.
package election

import (
	"context"

	"github.com/fencelock/fencelock"
)

func Run(ctx context.Context, locks *fencelock.Locker, name string, fn func(ctx context.Context) error) error {
	return fn(ctx)
}

type Candidate struct{}

func (c *Candidate) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	return fn(ctx)
}
