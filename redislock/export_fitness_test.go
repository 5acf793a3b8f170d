package redislock

import (
	"context"

	"github.com/fencelock/fencelock/internal/redisconn"
)

// Fitness is fitness, for tests outside the package.
type Fitness = fitness

// NewFitness returns the checks of a connection that a test has made.
func NewFitness(conn redisconn.Conn, cfg *Config) *Fitness {
	return &fitness{client: newClient(conn, cfg)}
}

// Fit is fit.
func (f *fitness) Fit(ctx context.Context) error { return f.fit(ctx) }

// Forget is forget.
func (f *fitness) Forget() { f.forget() }

// Close ends the checks.
func (f *fitness) Close() { f.tasks.Close() }
