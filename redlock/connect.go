package redlock

import (
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/redis/rueidis"
)

// Node is a connection to one master, made by [Rueidis] or [NewLazy].
type Node = redisconn.Node

// Rueidis returns a node that uses a rueidis client. The engine does not close the client. The
// client must be connected; use [NewLazy] for a master that may be down.
func Rueidis(client rueidis.Client) Node { return redisconn.NodeOf(redisconn.Rueidis(client)) }

// Lazy is a node that connects when it is first used, and again after a failure. A rueidis client
// cannot be created while its server is down, but redlock works without a minority of its servers.
// Lazy is safe for concurrent use.
type Lazy struct {
	opaque
	conns *redisconn.Lazy
}

type opaque = redisconn.OpaqueConn

// NewLazy returns a node that creates its client with dial. It does no I/O.
func NewLazy(dial func() (rueidis.Client, error)) *Lazy {
	lazy := redisconn.NewLazy(dial)
	return &Lazy{redisconn.NodeOf(lazy), lazy}
}

// Close closes the client, if there is one. Calls in progress and later calls fail.
func (l *Lazy) Close() { l.conns.Close() }
