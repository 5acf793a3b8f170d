// Package redisconn sends calls to Redis: scripts, pipelined or alone, subscriptions, and commands
// to all masters. It knows nothing of locks. The engines on Redis share it.
package redisconn

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
)

// Conn is what an engine needs of a Redis client. All methods may be called from many
// goroutines at once. They return the server's own words in errors ("NOPERM this user has
// no ...") and honour ctx even where the client below does not.
type Conn interface {
	// Eval runs scripts, pipelined, each on the master that has its keys, and
	// answers in the order of the calls. A script the server does not know is
	// loaded by sending its source. A call that may have reached the server is
	// never sent a second time, except after a redirection. A call the client
	// has given up on may still run later.
	Eval(ctx context.Context, calls []Call) []Reply

	// Subscribe subscribes to a channel, calls ready once the server has
	// acknowledged, and then message for each message in order, from one
	// goroutine. It blocks until ctx ends or the subscription breaks, and says
	// why; the caller subscribes again.
	Subscribe(ctx context.Context, channel string, ready func(), message func(text string)) error

	// Scan calls fn with the keys that match a glob pattern, on every master, a
	// batch at a time; a key may come twice.
	Scan(ctx context.Context, match string, fn func(keys []string) error) error

	// Each sends one command, which names no key, to every master, to all at once.
	Each(ctx context.Context, args ...string) ([]Answer, error)

	// Cluster reports whether the client talks to a Redis Cluster. It does no I/O.
	Cluster() bool
}

// Node is a connection as applications pass it on to an engine, who see nothing of it.
type Node interface{ conn() Conn }

// OpaqueConn is a Node that shows its connection to this package alone.
type OpaqueConn struct{ hidden Conn }

// NodeOf makes a Node of a connection.
func NodeOf(conn Conn) OpaqueConn { return OpaqueConn{conn} }

func (n OpaqueConn) conn() Conn { return n.hidden }

// ConnOf returns the connection of a Node, the same one each time. It does no I/O.
func ConnOf(n Node) Conn { return n.conn() }

// Call is one run of a script.
type Call struct {
	Script *Script
	Keys   []string
	Args   []string

	// Replicas, if greater than 0, makes the client wait (WAIT, on the same
	// connection) for so many replicas, at most as long as ctx allows.
	Replicas int
}

// Reply is what a script returned: every script of ours returns a string.
type Reply struct {
	Text     string
	Replicas int // how many replicas acknowledged, if the call asked
	Err      error
}

// Failures are the replies to n calls that all failed with err.
func Failures(n int, err error) []Reply { return slices.Repeat([]Reply{{Err: err}}, n) }

// Answer is what one master said. Lists and maps come flattened, one element a
// line.
type Answer struct {
	Node string // address, if the client knows it
	Text string
	Err  error
}

// Script is a Lua script.
type Script struct {
	Source string
	SHA1   string // of Source, in hexadecimal, as EVALSHA wants it
}

// NewScript returns the script whose source is the parts together.
func NewScript(parts ...string) *Script {
	source := strings.Join(parts, "")
	sum := sha1.Sum([]byte(source))
	return &Script{Source: source, SHA1: hex.EncodeToString(sum[:])}
}
