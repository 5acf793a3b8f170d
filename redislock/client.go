package redislock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/tasks"
)

// client makes script calls: it supplies their common arguments and deadlines, and tracks the
// server's clock. It contains no lock logic.
type client struct {
	keyspace
	tasks  *tasks.Group
	closed context.Context // ends with Close
	conn   redisconn.Conn
	cfg    Config
	id     string // random; its channel is named after it

	retention string // Config.Retention, as an argument of scripts
	settings  string // of the engine, as an argument of most scripts
	clock     clock
	mute      sync.Once // logs that the user may not PUBLISH
	own       ownTime
}

func newClient(conn redisconn.Conn, cfg *Config) *client {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	all, before := tasks.New(), time.Now().Add(-time.Microsecond)
	c := &client{tasks: all, closed: all.Closed, conn: conn, cfg: cfg.withDefaults(), id: hex.EncodeToString(id[:]), own: ownTime{zero: before, last: before}}
	c.keyspace = keyspace{prefix: c.cfg.Prefix, cluster: conn.Cluster}
	c.retention = redisfmt.Millis(c.cfg.Retention)
	c.settings = c.settingsArg()
	return c
}

// settingsArg returns the engine's settings as an argument for the scripts that may grant.
func (c *client) settingsArg() string {
	counts, quarantine := 1, int64(0)
	if c.cluster() {
		counts = 0 // subscribers on other nodes are not counted
	}
	if c.cfg.Quarantine {
		quarantine = redisfmt.CeilMillis(c.cfg.quarantine())
	}
	return fmt.Sprintf("%s %d %d", c.retention, counts, quarantine)
}

// call makes a call of a lock script.
func (c *client) call(s *redisconn.Script, lock string, args ...string) redisconn.Call {
	keys := []string{lock}
	if c.cfg.Quarantine {
		keys = append(keys, c.markerKey())
	}
	return redisconn.Call{Script: s, Keys: keys, Args: append(append(make([]string, 0, 2+len(args)), c.base(), c.settings), args...)}
}

// eval runs one script on the master that has its keys.
func (c *client) eval(ctx context.Context, call redisconn.Call) (string, error) {
	r := c.conn.Eval(ctx, []redisconn.Call{call})[0]
	return r.Text, r.Err
}

// unreached adds the servers' addresses to an error, if the connection knows them.
func (c *client) unreached(err error) error {
	if c, ok := c.conn.(interface{ Unreached(error) error }); ok {
		return c.Unreached(err)
	}
	return err
}

// errClosed is wrapped by calls on a closed engine.
var errClosed = errors.New("the engine is closed")
