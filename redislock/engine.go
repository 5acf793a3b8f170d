package redislock

import (
	"context"

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
	_ driver.Inspector    = (*Engine)(nil)
	_ driver.Resizer      = (*Engine)(nil)
	_ driver.Parter       = (*Engine)(nil)
)

// Engine is a client of one Redis: a server, a master and its replicas, or a
// Cluster. All methods may be called from many goroutines at once.
// Use it through fencelock.New: its own Acquire does not renew.
type Engine struct {
	*client
	queue    *waitQueue
	batcher  *batcher
	acquirer *acquirer
	lister   *lister
	marker   *marker
	parts    *parts
}

// New returns an engine on a rueidis client, which stays the caller's to close.
// It does no I/O; cfg may be nil.
func New(client rueidis.Client, cfg *Config) *Engine {
	return newEngine(redisconn.Rueidis(client), cfg)
}

func init() { open.Engine = newEngine }

// newEngine returns an engine on a connection of any kind.
func newEngine(conn redisconn.Conn, cfg *Config) *Engine {
	c := newClient(&loginConn{Conn: conn}, cfg)
	if err := checkPrefix(c.cfg.Prefix); err != nil {
		c.conn = redisconn.Refusing(err)
	}
	queue := &waitQueue{client: c, waiters: map[string]*waiter{}, groups: map[string]*group{}, holds: map[string]hold{}, late: map[string]int64{}, freeing: map[string]bool{}}
	queue.index = newNameIndex(c, queue.matters)
	batcher := &batcher{client: c, delay: batchDelay}
	fitness := &fitness{client: c, looking: make(chan struct{}, 1)}
	marker, parts := &marker{client: c}, &parts{client: c}
	return &Engine{
		client: c, queue: queue, batcher: batcher, marker: marker, parts: parts,
		lister: &lister{client: c, index: queue.index, marker: marker},
		acquirer: &acquirer{
			client: c, queue: queue, batcher: batcher, fitness: fitness, marker: marker, parts: parts,
			listener: &listener{client: c, queue: queue, fitness: fitness, up: make(chan struct{})},
		},
	}
}

// Close ends the engine's subscription and its waits, which return
// driver.ErrUnavailable. Locks it holds stay until they expire; release them
// first. It waits for the engine's goroutines and does not close the client.
func (e *Engine) Close() error {
	e.tasks.Close()
	return nil
}

// Init declares a server new, so that an engine with Quarantine grants on it at
// once. Call it when nobody can hold a lock on it.
func (e *Engine) Init(ctx context.Context) error { return e.marker.Init(ctx) }

// Traits returns what one Redis promises.
func (e *Engine) Traits() driver.Traits { return e.cfg.traits() }

// Part names the master that has the slot of a lease, as far as it is known, so
// that renewals for one that is silent hold up no others; see [driver.Parter].
// Without a Cluster there is one part.
func (e *Engine) Part(l driver.Lease) string { return e.parts.Part(l) }

// Acquire makes one acquisition; see [driver.Engine]. Waiters are first come,
// first served, across all clients: the release of a lock grants it to the next
// one, which learns by a published message, in one round trip. Behind a holder
// that is not of this library it polls every 50 to 150 ms.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return e.acquirer.Acquire(ctx, req)
}

// List returns the names that are held, waited for or closed by a minimum hold. Unless
// the name is exact it looks at those that clients of this library have held, or waited
// for, for longer than half a second; with Scan, or where the user may not read their
// index, it looks through all keys of the server instead. It shows at most 1,000
// waiters of a name.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	return e.lister.List(ctx, q)
}

// Resize sets the limit of a shared name for everybody; see [driver.Resizer]. The
// server remembers it for Config.Retention after the last shared acquire or Resize.
// A try that arrives late, after another Resize, has no effect. Passing errors are
// tried again, for no longer than RetryTimeout; after an error the limit may have
// changed or may still change.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	return e.client.Resize(ctx, name, limit)
}
