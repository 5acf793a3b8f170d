package redislock

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock/internal/open"
	"github.com/redis/rueidis"
)

var (
	_ driver.Engine       = (*Engine)(nil)
	_ driver.Lister       = (*Engine)(nil)
	_ driver.Breaker      = (*Engine)(nil)
	_ driver.OwnerBreaker = (*Engine)(nil)
	_ driver.Adopter      = (*Engine)(nil)
	_ driver.Inspector    = (*Engine)(nil)
	_ driver.Resizer      = (*Engine)(nil)
	_ driver.Parter       = (*Engine)(nil)
)

// Engine implements driver.Engine on one Redis: a server, a master with its replicas, or a Cluster.
// It is safe for concurrent use. Pass it to fencelock.New, which renews leases; Engine.Acquire
// alone does not.
type Engine struct {
	client   *client
	queue    *waitQueue
	batcher  *batcher
	acquirer *acquirer
	lister   *lister
	marker   *marker
	parts    *parts
	silent   sync.Map // the parts whose last renewals were not answered
}

// New returns an engine that uses a rueidis client. It does no I/O; cfg may be nil. The engine does
// not close the client.
func New(client rueidis.Client, cfg *Config) *Engine {
	return newEngine(redisconn.Rueidis(client), cfg)
}

func init() { open.Engine = newEngine }

// newEngine returns an engine on any kind of connection.
func newEngine(conn redisconn.Conn, cfg *Config) *Engine {
	c := newClient(&loginConn{Conn: conn}, cfg)
	if err := checkPrefix(c.cfg.Prefix); err != nil {
		c.conn = redisconn.Refusing(err)
	}
	queue := &waitQueue{client: c, waiters: map[string]*waiter{}, groups: map[string]*group{}, holds: map[string]*hold{}, late: map[string]int64{}, freeing: map[string]bool{}, short: map[string]bool{}}
	queue.index = newNameIndex(c, queue.matters)
	batcher := &batcher{client: c, delay: batchDelay}
	server := &serverCheck{client: c}
	marker, parts := &marker{client: c}, &parts{client: c}
	queue.toucher = &toucher{client: c, queue: queue, parts: parts, busy: map[string]bool{}}
	return &Engine{
		client: c, queue: queue, batcher: batcher, marker: marker, parts: parts,
		lister: &lister{client: c, index: queue.index, marker: marker},
		acquirer: &acquirer{
			client: c, queue: queue, batcher: batcher, server: server, marker: marker, parts: parts,
			listener: &listener{client: c, queue: queue, server: server, up: make(chan struct{})},
		},
	}
}

// Close ends the engine's subscription and its waits, which return driver.ErrUnavailable, and waits
// for its goroutines. Locks that are still held remain until they expire, so release them first.
// Close does not close the client.
func (e *Engine) Close() error {
	e.client.tasks.Close()
	return nil
}

// Init marks the server as new, so that an engine with Quarantine grants on it immediately. Call it
// only when nobody can hold a lock on this server.
func (e *Engine) Init(ctx context.Context) error { return e.marker.Init(ctx) }

// Traits returns the engine's capabilities.
func (e *Engine) Traits() driver.Traits { return e.client.cfg.traits() }

// Part returns the master that holds the slot of a lease, if it is known, so that renewals on an
// unresponsive master do not delay those on others; see [driver.Parter]. Without a Cluster it
// returns the same value for every lease.
func (e *Engine) Part(l driver.Lease) string { return e.parts.Part(l) }

// Acquire makes one acquisition; see [driver.Engine]. Waiters are served first come, first served
// across all clients: the release of a lock grants it to the next waiter, whose client is notified
// by a published message, in one round trip. If another program's lock is in the way, Acquire polls
// every 50 to 150 ms.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return e.acquirer.Acquire(ctx, req)
}

// Adopt ends an acquisition of any client and grants its name to req, in one script; see
// [driver.Adopter]. Transient errors are retried for up to RetryTimeout. With Quarantine, a server
// that may have lost data adopts nothing.
func (e *Engine) Adopt(ctx context.Context, lease driver.Lease, req driver.Request) (driver.Grant, error) {
	return e.acquirer.Adopt(ctx, lease, req)
}

// Detach forgets an acquisition; see [driver.Adopter]. If the lock came by a hand-over that has not
// been confirmed yet, Detach first renews it to its TTL, which blocks for two seconds at most.
func (e *Engine) Detach(lease driver.Lease) {
	if e.queue.isShort(lease.Owner) {
		ctx, cancel := context.WithTimeout(e.client.closed, min(grantLife, lease.TTL))
		defer cancel()
		_ = e.Renew(ctx, []driver.Lease{lease}) // if it fails, the lease ends with the grant
	}
	e.queue.forgetAfter(lease.TTL, lease.Owner)
}

// List returns the names that are held, waited for or closed by a minimum hold. Unless the name is
// exact, it reads the index, which has the names that clients of this library have held or waited
// for for longer than half a second. With Scan, or if the user may not read the index, it scans all
// keys of the server instead. It returns at most 1,000 waiters of a name. A list takes several
// requests, and ends with driver.ErrUnavailable if one of them is not answered within RetryTimeout.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	return e.lister.List(ctx, q)
}

// Resize sets the limit of a shared name for all clients; see [driver.Resizer]. The server keeps
// the limit for Config.Retention after the last shared acquire or Resize. Transient errors are
// retried for up to RetryTimeout. A retry that arrives after another Resize has no effect. After an
// error the limit may have changed or may still change.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	return e.client.Resize(ctx, name, limit)
}

// Resize sets the limit of a shared name.
func (c *client) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	lock, err := c.lockKey(name)
	if err != nil {
		return err
	}
	// The first call reads the version of the limit and the second one changes that version. So a
	// call that arrives after another Resize finds a newer version and has no effect.
	limited := redisconn.WithDeadline(ctx, c.cfg.RetryTimeout)
	text, err := c.retryUnavailable(ctx, limited, attemptLimit(0), c.newCall(resizeScript, lock, strconv.Itoa(limit)))
	if err != nil {
		return unavailable(err)
	}
	version, ok := strings.CutPrefix(text, "version ")
	if !ok {
		return malformed(text)
	}
	text, err = c.retryUnavailable(ctx, limited, attemptLimit(0), c.newCall(resizeScript, lock, strconv.Itoa(limit), version))
	_, failure, _ := strings.Cut(text, " ")
	c.unpublished(lock, failure)
	return unavailable(err)
}

// retryUnavailable repeats a call until the server answers or limited ends. Each attempt has its
// own time limit, because an attempt on a dead connection may never return. Calls that must not run
// twice pass a limit as long as limited.
func (c *client) retryUnavailable(ctx, limited context.Context, each time.Duration, call redisconn.Call) (string, error) {
	var why error
	for pause := newBackoff(); ; pause.Wait(ctx) {
		text, err := c.eval(redisconn.WithDeadline(limited, each), call)
		why = cause(why, err)
		if err == nil || !passing(err) || limited.Err() != nil || c.closed.Err() != nil {
			return text, why
		}
	}
}
