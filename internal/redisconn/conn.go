// Package redisconn provides connections to Redis for the engines: scripts, pipelined or not,
// subscriptions, and commands to all masters. It knows nothing about locks.
package redisconn

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"
)

// Conn is what an engine needs of a Redis client. It is safe for concurrent use. Errors contain the
// server's own message ("NOPERM this user has no ..."). All methods end with ctx, even if the
// client does not.
type Conn interface {
	// Eval runs scripts, pipelined, each on the master that has its keys. The replies are in the
	// order of the calls. If a server does not have a script, its source is sent. A call that may
	// have reached the server is not sent a second time, except after a redirection. A call whose
	// ctx has ended may still run later.
	Eval(ctx context.Context, calls []Call) []Reply

	// Subscribe subscribes to a channel. It calls ready after the server has acknowledged, and then
	// message for each message in order, from one goroutine. It blocks until ctx ends or the
	// subscription breaks, and returns the reason. The caller subscribes again.
	Subscribe(ctx context.Context, channel string, ready func(), message func(text string)) error

	// Scan calls fn with the keys that match a glob pattern, on every master, in batches. A key may
	// occur twice. Each request of the scan ends after limit; 0 means that only ctx ends it.
	Scan(ctx context.Context, limit time.Duration, match string, fn func(keys []string) error) error

	// Each sends a command without keys to all masters concurrently.
	Each(ctx context.Context, args ...string) ([]Answer, error)

	// Cluster reports whether the client is for a Redis Cluster. It does no I/O.
	Cluster() bool
}

// Node is a connection that applications pass to an engine without access to it.
type Node interface{ conn() Conn }

// OpaqueConn is a Node whose connection only this package can access.
type OpaqueConn struct{ hidden Conn }

// NodeOf returns a Node for a connection.
func NodeOf(conn Conn) OpaqueConn { return OpaqueConn{conn} }

func (n OpaqueConn) conn() Conn { return n.hidden }

// ConnOf returns the connection of a Node, always the same one. It does no I/O.
func ConnOf(n Node) Conn { return n.conn() }

// Call is one run of a script.
type Call struct {
	Script *Script
	Keys   []string
	Args   []string

	// Replicas, if greater than 0, is the number of replicas to wait for with WAIT, on the same
	// connection and at most as long as ctx allows.
	Replicas int
}

// Reply is the result of a script. All our scripts return a string.
type Reply struct {
	Text     string
	Replicas int // how many replicas acknowledged, if Call.Replicas was set
	Err      error
}

// Failures returns n replies with the error err.
func Failures(n int, err error) []Reply { return slices.Repeat([]Reply{{Err: err}}, n) }

// Answer is the answer of one master. Lists and maps are flattened, one element per line.
type Answer struct {
	Node string // address, if the client knows it
	Text string
	Err  error
}

// Script is a Lua script. Its source is made when it is first used, since most processes use few of
// the scripts, or none.
type Script struct {
	texts func() (source, sha1 string)
}

// NewScript returns the script whose source is the concatenation of parts.
func NewScript(parts ...string) *Script {
	return NewLazyScript(func() string { return strings.Join(parts, "") })
}

// NewLazyScript returns the script whose source is the result of text, which is called once at most.
func NewLazyScript(text func() string) *Script {
	return &Script{sync.OnceValues(func() (string, string) {
		source := text()
		sum := sha1.Sum([]byte(source))
		return source, hex.EncodeToString(sum[:])
	})}
}

// Source returns the text of the script.
func (s *Script) Source() string {
	source, _ := s.texts()
	return source
}

// SHA1 returns the SHA-1 of the source in hexadecimal, for EVALSHA.
func (s *Script) SHA1() string {
	_, sum := s.texts()
	return sum
}
