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
	_ driver.Inspector    = (*Engine)(nil)
)

// Engine is a client of several masters. All methods may be called from many
// goroutines at once.
// Use it through fencelock.New: its own Acquire does not renew.
type Engine struct {
	*client
	set      *nodeSet
	acquirer *acquirer
	renewer  *renewer
	releaser *releaser
	lister   *lister
	breaker  *breaker
}

// New returns an engine on the masters behind nodes, an odd number of three or
// more. The clients stay the caller's. It does no I/O: a set that is no good
// shows in the first request. cfg may be nil.
func New(nodes []Node, cfg *Config) *Engine { return newEngine(nodes, cfg.withDefaults(), len(nodes)) }

// newEngine returns an engine on nodes of a set of so many.
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

// enter begins a call of the engine; without an error the caller says leave at the end.
func (e *Engine) enter() error {
	if e.set.wrong != nil {
		return e.set.wrong
	}
	if !e.tasks.Enter() {
		return unavailable(errClosed)
	}
	return nil
}

// Close ends the engine's subscriptions and its waits. Locks it holds stay until
// they expire; release them first. It waits for requests under way, 2 s at most.
func (e *Engine) Close() error {
	e.tasks.Close()
	return nil
}

// Init declares all nodes new, so that they vote at once. Call it when nobody
// can hold a lock on them. It fails unless every node answers.
func (e *Engine) Init(ctx context.Context) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.tasks.Leave()
	return e.set.Init(ctx)
}

// Traits returns what a majority of masters promises.
func (e *Engine) Traits() driver.Traits { return e.cfg.traits() }

// Acquire makes one acquisition; see [driver.Engine]. It returns as soon as a
// majority has decided. Waiters of one process take turns in the order in which
// they came; between processes there is no order. A waiter is woken when a node
// tells of a release, and looks again by itself when a lease may have ended.
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

// Renew extends acquisitions. Each node gets all of them in one pipeline, and
// Renew returns when a majority has decided every one. A node that lost a lock
// which a majority kept is given it back.
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

// Release ends an acquisition on all nodes, and returns when a majority has done
// so. Nodes that cannot be reached are told when they are back.
func (e *Engine) Release(ctx context.Context, l driver.Lease) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.tasks.Leave()
	return e.releaser.Release(ctx, l)
}

// List returns the names that a majority of the nodes shows as held, waited for
// or closed by a minimum hold. Unless the name is exact it looks at those that clients
// of this library have held, or waited for, for longer than half a second; with Scan, or
// where the user may not read their index, it looks through all keys of the nodes
// instead. Of the exclusive requests that wait in one process the nodes know the first;
// the order of waiters is no promise.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.tasks.Leave()
	return e.lister.List(ctx, q)
}

// Break takes a name away from its holders on all nodes, mints a token greater
// than theirs, ends the minimum hold, and lets the name go. Holders that can be reached
// learn at once. An error that comes with a token says that the minimum hold may stand.
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

// BreakOwner is Break for one acquisition: that of owner, and of nobody else. Each node
// takes the lock from that owner alone, and gives it to the break for a moment, beside
// those who share it. The token is of the break, or of an exclusive holder that
// came in between.
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
