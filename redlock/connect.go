package redlock

import (
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/redis/rueidis"
)

// Node is a connection to one master: of [Rueidis] or of [NewLazy].
type Node = redisconn.Node

// Rueidis returns a node on a rueidis client, which stays the caller's to close. The
// client must be connected; see [NewLazy] for a master that may be down.
func Rueidis(client rueidis.Client) Node { return redisconn.NodeOf(redisconn.Rueidis(client)) }

// Lazy is a node that dials when it is first used, and again after a failure: a client
// of rueidis cannot be made while its server is down, and redlock does without some.
// All methods may be called from many goroutines at once.
type Lazy struct {
	opaque
	conns *redisconn.Lazy
}

type opaque = redisconn.OpaqueConn

// NewLazy returns a node that gets its client from dial. It does no I/O.
func NewLazy(dial func() (rueidis.Client, error)) *Lazy {
	lazy := redisconn.NewLazy(dial)
	return &Lazy{redisconn.NodeOf(lazy), lazy}
}

// Close closes the client, if there is one. Calls under way, and later ones,
// fail.
func (l *Lazy) Close() { l.conns.Close() }
