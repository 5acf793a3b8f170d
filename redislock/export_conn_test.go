package redislock

import "github.com/fencelock/fencelock/internal/redisconn"

// NewConn returns an engine on a connection that a test has made.
func NewConn(conn redisconn.Conn, cfg *Config) *Engine { return newEngine(conn, cfg) }
