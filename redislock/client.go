package redislock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
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

// newCall returns a call of a lock script.
func (c *client) newCall(s *redisconn.Script, lock string, args ...string) redisconn.Call {
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

// format begins the value of our lock keys and, after the prefix, the names of the related keys and
// channels. A value of another version's format is treated as held.
const format = "fencelock:2"

// holderPrefix begins the value of a lock key that names its holder.
const holderPrefix = format + " "

// keyspace is the keys and channels of the clients with one prefix.
type keyspace struct {
	prefix  string
	cluster func() bool // reports whether the keys of one name must share a slot
}

// base begins the names of the channels and of all keys of a lock but its own. The scripts append
// to it.
func (s keyspace) base() string { return s.prefix + format + ":" }

// lockKey returns the key of a name, which is the key that plain SET NX locks use.
func (s keyspace) lockKey(name string) (string, error) {
	lock := s.prefix + "lock:" + name
	if s.cluster() && strings.Contains(lock, "}") && !hasTag(lock) {
		return "", fmt.Errorf("%w: on a Redis Cluster the keys of %q cannot share a slot, because it contains } but no hash tag; remove the }", driver.ErrInvalid, name)
	}
	return lock, nil
}

// alive returns the beginning of the keys that say which waiting clients are alive. On a Cluster each
// name has keys of its own.
func (s keyspace) alive(lock string) string {
	if !s.cluster() {
		return s.base() + "alive:"
	}
	return s.base() + "alive:" + tagOf(lock) + ":"
}

// tagOf returns the end of the related keys' names; it must match the scripts' function.
func tagOf(lock string) string {
	if hasTag(lock) {
		return lock
	}
	return "{" + lock + "}"
}

// nameOf returns the name of a lock from its key or from that of a related key.
func (s keyspace) nameOf(key string) (string, bool) {
	lock := key
	if rest, ok := strings.CutPrefix(key, s.base()); ok {
		_, lock, _ = strings.Cut(rest, ":")
		if inner := strings.TrimSuffix(strings.TrimPrefix(lock, "{"), "}"); tagOf(inner) == lock {
			lock = inner
		}
	}
	name, ok := strings.CutPrefix(lock, s.prefix+"lock:")
	return name, ok && driver.CheckName(name) == nil
}

// hasTag reports whether Redis Cluster hashes only a part of the key: the text between the first {
// and the next }, unless that is empty.
func hasTag(key string) bool {
	_, after, ok := strings.Cut(key, "{")
	return ok && strings.Index(after, "}") > 0
}

// slotTag returns the part of a key that Redis Cluster hashes.
func slotTag(key string) string {
	if !hasTag(key) {
		return key
	}
	_, after, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(after, "}")
	return tag
}

// checkPrefix rejects a prefix that begins like a key of clients without a prefix, and one with a
// brace that would precede the hash tag of the related keys.
func checkPrefix(prefix string) error {
	for _, taken := range [...]string{"lock:", recordPrefix, "fencelock:"} {
		if strings.HasPrefix(prefix, taken) {
			return fmt.Errorf("%w: the prefix %q begins with %q, like keys of clients without a prefix; choose another prefix", driver.ErrConfig, prefix, taken)
		}
	}
	if strings.ContainsAny(prefix, "{}") && !hasTag(prefix) {
		return fmt.Errorf("%w: the prefix %q contains a brace but no hash tag; remove the brace", driver.ErrConfig, prefix)
	}
	return nil
}

// markerKey returns the key that holds the last known incarnation of the server.
func (s keyspace) markerKey() string { return s.prefix + "fencelock:incarnation" }

// unavailable wraps an error of a server or a client in ErrUnavailable, or in ErrConfig if the
// setup must be corrected. nil stays nil.
func unavailable(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) {
		return err
	}
	if e, ok := errors.AsType[redisconn.ServerError](err); ok && e.Denied() {
		return fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// passing reports whether a retry may succeed: the server did not answer, or it reports that it is
// starting, failing over or moving keys, has no free connection, or has not loaded the script yet.
func passing(err error) bool {
	e, ok := errors.AsType[redisconn.ServerError](err)
	if !ok {
		return !errors.Is(err, driver.ErrConfig)
	}
	switch e.Code() {
	case "LOADING", "READONLY", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY", "UNBLOCKED", "NOSCRIPT", "MISCONF":
		return true
	}
	return slices.ContainsFunc(passingTexts, func(text string) bool { return strings.Contains(e.Text, text) })
}

// passingTexts are errors without a code of their own that pass. The last two refuse a script
// that uses a key of a slot that is moving to another node.
var passingTexts = []string{"max number of clients", "non local key", "during rehashing of the slot"}

// cause returns why attempts have failed: err, or the error known before if err says only that the
// time is up.
func cause(before, err error) error {
	if before != nil && redisconn.IsContextError(err) {
		return before
	}
	return err
}

// attemptLimit returns the time limit of one call for a lock with this TTL: short enough for
// another attempt within the TTL, long enough for a busy network.
func attemptLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 500*time.Millisecond), 2*time.Second)
}

// newBackoff returns the pauses between attempts while the server does not answer.
func newBackoff() *retry.Backoff { return retry.NewBackoff(10*time.Millisecond, time.Second) }
