package redlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/tasks"
)

// client is shared by all parts of an engine: configuration, scripts, keys and goroutines. It
// contains no node or lock logic.
type client struct {
	tasks  *tasks.Group
	closed context.Context // ends with Close
	cfg    Config
	lua    scripts
}

// call makes a call of a lock script. For speed, only the lock's key is passed and the scripts
// derive the related keys themselves. That is allowed because a node is not part of a Cluster.
func (c *client) call(s *redisconn.Script, name string, args ...string) redisconn.Call {
	return redisconn.Call{Script: s, Keys: []string{c.cfg.Prefix + "lock:" + name}, Args: args}
}

// companions are the prefixes of the keys related to a lock.
var companions = [...]string{"fence:", "shared:", "tokens:", "about:", "queue:", "callers:"}

// nameOf returns the name of a lock from its key or from that of a related key.
func (c *client) nameOf(key string) (string, bool) {
	for _, prefix := range companions {
		if inner, ok := strings.CutPrefix(key, prefix+"{"); ok && strings.HasSuffix(inner, "}") {
			key = inner[:len(inner)-1]
			break
		}
	}
	name, ok := strings.CutPrefix(key, c.cfg.Prefix+"lock:")
	return name, ok && driver.CheckName(name) == nil
}

// Time limits of calls that no lease depends on. They are variables so that tests can change them
// on slow machines.
var (
	meetLimit   = time.Second     // for probing all nodes
	callLimit   = 2 * time.Second // for a call to one node
	reviveLimit = 2 * time.Second // for checking whether a node answers again; a frozen one answers when it is resumed
	listLimit   = 10 * time.Second
)

var errClosed = errors.New("the engine is closed")
