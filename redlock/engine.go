package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/tasks"
)

var (
	_ driver.Engine       = (*Engine)(nil)
	_ driver.Lister       = (*Engine)(nil)
	_ driver.Breaker      = (*Engine)(nil)
	_ driver.OwnerBreaker = (*Engine)(nil)
	_ driver.Adopter      = (*Engine)(nil)
	_ driver.Inspector    = (*Engine)(nil)
)

// Engine implements driver.Engine on several masters. It is safe for concurrent use. Pass it to
// fencelock.New, which renews leases; Engine.Acquire alone does not.
type Engine struct {
	*client
	set      *nodeSet
	acquirer *acquirer
	renewer  *renewer
	releaser *releaser
	lister   *lister
	breaker  *breaker
}

// New returns an engine on an odd number of masters, three or more. It does no I/O; an invalid set
// of nodes is reported by the first request. cfg may be nil. The engine does not close the clients.
func New(nodes []Node, cfg *Config) *Engine { return newEngine(nodes, cfg.withDefaults(), len(nodes)) }

// newEngine returns an engine on nodes that belong to a set of all nodes.
func newEngine(nodes []Node, cfg Config, all int) *Engine {
	work := tasks.New()
	c := &client{tasks: work, closed: work.Closed, cfg: cfg}
	c.lua = c.cfg.scripts(all, nil)
	holds := &holdings{byOwner: map[string]*held{}, sweepAt: 1000}
	queues, news := &localQueues{byName: map[string]*localQueue{}}, &news{byName: map[string]map[string]chan string{}}
	set := newNodeSet(c, holds, nodes)
	names := newNameIndex(c, set, func(n nameindex.Noted) bool { return holds.has(n.Owner) || queues.has(n.Name) })
	proposer := &proposer{client: c, set: set, holds: holds, names: names, clock: time.Now}
	releaser := &releaser{client: c, set: set, holds: holds}
	renewer := &renewer{client: c, set: set, holds: holds, names: names, releaser: releaser}
	lister := &lister{set: set}
	return &Engine{
		client: c, set: set, renewer: renewer, releaser: releaser, lister: lister,
		breaker: &breaker{client: c, lister: lister, proposer: proposer, releaser: releaser},
		acquirer: &acquirer{
			client: c, set: set, proposer: proposer, names: names, queues: queues, news: news,
			listener: &listener{client: c, set: set, holds: holds, news: news, renewer: renewer},
		},
	}
}

// enter begins a call of the engine. Unless it returns an error, the caller must call tasks.Leave.
func (e *Engine) enter() error {
	if e.set.wrong != nil {
		return e.set.wrong
	}
	if !e.tasks.Enter() {
		return unavailable(errClosed)
	}
	return nil
}

// Close ends the engine's subscriptions and waits. Locks that are still held remain until they
// expire, so release them first. Close waits up to 2 s for requests in progress.
func (e *Engine) Close() error {
	e.tasks.Close()
	return nil
}

// Init marks all nodes as new, so that they vote immediately. Call it only when nobody can hold a
// lock on them. It returns an error unless every node answers.
func (e *Engine) Init(ctx context.Context) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.tasks.Leave()
	return e.set.Init(ctx)
}

// Traits returns the engine's capabilities.
func (e *Engine) Traits() driver.Traits { return e.cfg.traits() }

// Acquire makes one acquisition; see [driver.Engine]. It returns as soon as a majority has decided.
// Waiters of the same process are served first come, first served; between processes there is no
// order. A waiter is woken when a node publishes a release, and retries when a lease may have
// expired.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	if err := e.enter(); err != nil {
		return driver.Grant{}, err
	}
	defer e.tasks.Leave()
	return e.acquirer.Acquire(ctx, req)
}

// Adopt ends an acquisition of any client and grants its name to req; see [driver.Adopter]. A
// majority of the nodes must have the acquisition. If Adopt fails after a majority has replaced it,
// or if several clients adopt it at the same time while a node is down, nobody holds the lock.
func (e *Engine) Adopt(ctx context.Context, lease driver.Lease, req driver.Request) (driver.Grant, error) {
	if err := req.CheckAdopt(e.cfg.traits(), lease); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	if err := e.enter(); err != nil {
		return driver.Grant{}, err
	}
	defer e.tasks.Leave()
	return e.acquirer.Adopt(ctx, lease, req)
}

// Detach does nothing: acquisitions that are not renewed are forgotten after twice their TTL.
func (e *Engine) Detach(driver.Lease) {}

// Renew extends acquisitions. Each node gets all of them in one pipeline. Renew returns when a
// majority has decided each one. If a majority has kept a lock, it is restored on nodes that have
// lost it.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	if err := e.enter(); err != nil {
		return slices.Repeat([]error{err}, len(leases))
	}
	defer e.tasks.Leave()
	if len(leases) == 0 {
		return nil
	}
	return e.renewer.Renew(ctx, leases)
}

// Release ends an acquisition on all nodes, and returns when a majority has executed it.
// Unreachable nodes release it when they answer again.
func (e *Engine) Release(ctx context.Context, l driver.Lease) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.tasks.Leave()
	return e.releaser.Release(ctx, l)
}

// List returns the names that a majority of the nodes reports as held, waited for or closed by a
// minimum hold. Unless the name is exact, it reads the nodes' indexes, which have the names that
// clients of this library have held or waited for for longer than half a second. With Scan, or if
// the user may not read the index, it scans all keys of the nodes instead. Each process sends the
// nodes only the first of its exclusive requests that wait for a name, so the others are not listed.
// The order of waiters is not guaranteed.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.tasks.Leave()
	return e.lister.List(ctx, q)
}

// Break ends every acquisition of name on all nodes and its minimum hold. It returns a fencing
// token that is greater than theirs. Holders that can be reached are notified immediately. An error
// together with a token means that the minimum hold may not have ended.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	if err := e.enter(); err != nil {
		return 0, err
	}
	defer e.tasks.Leave()
	return e.breaker.Break(ctx, name, reason)
}

// BreakOwner is like Break, but ends only the acquisition of owner. Each node replaces that
// acquisition, briefly, by one of BreakOwner itself, beside those that share the lock. The token is
// that of the break, or that of an exclusive holder that has acquired the lock meanwhile.
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	if err := e.enter(); err != nil {
		return 0, err
	}
	defer e.tasks.Leave()
	return e.breaker.BreakOwner(ctx, name, owner, reason)
}
