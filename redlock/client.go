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

// client is what all parts of an engine share: its settings, its scripts, its keys and
// its goroutines. It knows no nodes and no locks.
type client struct {
	tasks  *tasks.Group
	closed context.Context // ends with Close
	cfg    Config
	lua    scripts
}

// call makes a call of a script that is about one name. The scripts get the lock's key
// alone and make the names of its companions themselves, for the sake of speed: a node
// of redlock is no part of a cluster.
func (c *client) call(s *redisconn.Script, name string, args ...string) redisconn.Call {
	return redisconn.Call{Script: s, Keys: []string{c.cfg.Prefix + "lock:" + name}, Args: args}
}

// companions are the prefixes of the keys beside the lock's own.
var companions = [...]string{"fence:", "shared:", "tokens:", "about:", "queue:", "callers:"}

// nameOf returns the name whose lock, or whose companion, is at key.
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

// Limits of requests that nobody's lease depends on. They are variables for tests on
// machines that are slow.
var (
	meetLimit   = time.Second     // of asking all nodes who they are
	callLimit   = 2 * time.Second // of a request to one
	reviveLimit = 2 * time.Second // of a look whether it is back; a frozen one answers when it is thawed
	listLimit   = 10 * time.Second
)

var errClosed = errors.New("the engine was closed")
