package redislock

import (
	"context"

	"github.com/fencelock/fencelock/internal/redisconn"
)

// ServerCheck is serverCheck, for tests outside the package.
type ServerCheck = serverCheck

// NewFitness returns the checks of a connection that a test has made.
func NewFitness(conn redisconn.Conn, cfg *Config) *ServerCheck {
	return &serverCheck{client: newClient(conn, cfg)}
}

// Require is fit.
func (s *serverCheck) Require(ctx context.Context) error { return s.require(ctx) }

// Invalidate is forget.
func (s *serverCheck) Invalidate() { s.invalidate() }

// Close ends the checks.
func (s *serverCheck) Close() { s.client.tasks.Close() }
