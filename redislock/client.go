package redislock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/tasks"
)

// client makes calls: what they begin with, how long they may take, and what is
// known of the server's clock. It knows no locks.
type client struct {
	keyspace
	tasks  *tasks.Group
	closed context.Context // ends with Close
	conn   redisconn.Conn
	cfg    Config
	id     string // its channel is named after it

	retention string // of a fence, as an argument
	clock     clock
}

func newClient(conn redisconn.Conn, cfg *Config) *client {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	all := tasks.New()
	c := &client{tasks: all, closed: all.Closed, conn: conn, cfg: cfg.withDefaults(), id: hex.EncodeToString(id[:])}
	c.keyspace = keyspace{prefix: c.cfg.Prefix, cluster: conn.Cluster}
	c.retention = redisfmt.Millis(c.cfg.Retention)
	return c
}

// acquireFlags are what an acquire script is asked for beside the lock.
type acquireFlags int

const (
	toWait    acquireFlags = 1 << iota // a place in the queue
	askedOnce                          // an earlier try may have worked
	toPlace                            // which place it is
)

func (a acquireFlags) String() string {
	return [...]string{"-", "w", "a", "wa", "p", "wp", "ap", "wap"}[a]
}

// commonArg is the first argument of every script that may grant.
func (c *client) commonArg(a acquireFlags) string {
	counts, quarantine := 1, int64(0)
	if c.cluster() {
		counts = 0 // subscribers on other nodes are not counted
	}
	if c.cfg.Quarantine {
		quarantine = redisfmt.CeilMillis(c.cfg.quarantine())
	}
	return fmt.Sprintf("%v %s %d %d %s", a, c.retention, counts, quarantine, c.channel())
}

// call makes a call of a script that begins with the common argument, and finds
// most keys itself.
func (c *client) call(s *redisconn.Script, ks keys, args ...string) redisconn.Call {
	return c.flaggedCall(0, s, ks, args...)
}

// flaggedCall is call with something asked for.
func (c *client) flaggedCall(a acquireFlags, s *redisconn.Script, ks keys, args ...string) redisconn.Call {
	passed := []string{ks.lock, ks.fence}
	if c.cfg.Quarantine {
		passed = append(passed, c.markerKey())
	}
	return redisconn.Call{Script: s, Keys: passed, Args: append(append(make([]string, 0, 1+len(args)), c.commonArg(a)), args...)}
}

// eval runs one script, on the master that has its keys.
func (c *client) eval(ctx context.Context, call redisconn.Call) (string, error) {
	r := c.conn.Eval(ctx, []redisconn.Call{call})[0]
	return r.Text, r.Err
}

// unreached adds the addresses of the servers to an error, if the connection can.
func (c *client) unreached(err error) error {
	if c, ok := c.conn.(interface{ Unreached(error) error }); ok {
		return c.Unreached(err)
	}
	return err
}

// errClosed is what calls on a closed engine wrap.
var errClosed = errors.New("the engine was closed")
