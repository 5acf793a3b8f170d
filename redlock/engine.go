package redlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/redislock"
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
	nodes []*node
	need  int // a majority
	cfg   Config
	lua   scripts
	wrong error            // why this set of nodes is no good
	clock func() time.Time // for proposals only

	closed context.Context // ends with Close
	close  context.CancelFunc
	tasks  workerPool // calls under way, and the goroutines they started
	queues localQueues
	holds  holdings

	mu       sync.Mutex     // guards all below
	shut     bool           // no call may begin any more
	last     int64          // the greatest token seen
	servers  map[string]int // which node has a run id
	listened bool
	index    nameindex.Notes // for List to look at
}

// New returns an engine on the masters behind nodes, an odd number of three or
// more. The connections stay the caller's. It does no I/O: a set that is no good
// shows in the first request. cfg may be nil.
func New(nodes []redislock.Conn, cfg *Config) *Engine {
	e := &Engine{
		cfg: cfg.withDefaults(), need: len(nodes)/2 + 1, clock: time.Now,
		servers: map[string]int{}, queues: localQueues{byName: map[string]*localQueue{}}, holds: holdings{byOwner: map[string]*held{}, sweepAt: 1000},
	}
	for i, conn := range nodes {
		n := &node{engine: e, index: i, conn: conn, label: "node " + strconv.Itoa(i+1), orphans: map[string]orphan{}}
		if i < len(e.cfg.Nodes) {
			n.label = e.cfg.Nodes[i]
		}
		e.nodes = append(e.nodes, n)
	}
	e.wrong = e.checkSet()
	e.closed, e.close = context.WithCancel(context.Background())
	e.tasks.closed, e.tasks.work = e.closed, make(chan func())
	e.lua = e.cfg.scripts(len(nodes), nil)
	return e
}

// checkSet returns what can be said against the nodes without asking them.
func (e *Engine) checkSet() error {
	n := len(e.nodes)
	if n < 3 || n%2 == 0 {
		return fmt.Errorf("%w: redlock needs an odd number of masters, three or more, not %d", driver.ErrInvalid, n)
	}
	if len(e.cfg.Nodes) > 0 && len(e.cfg.Nodes) != n {
		return fmt.Errorf("%w: %d masters have %d names", driver.ErrInvalid, n, len(e.cfg.Nodes))
	}
	names := slices.Sorted(slices.Values(e.cfg.Nodes))
	if len(slices.Compact(names)) != len(e.cfg.Nodes) {
		return fmt.Errorf("%w: a master is named twice: %s", driver.ErrInvalid, strings.Join(e.cfg.Nodes, ", "))
	}
	for i, a := range e.nodes {
		for _, b := range e.nodes[:i] {
			if same(a.conn, b.conn) {
				return fmt.Errorf("%w: the same connection is given for two masters", driver.ErrInvalid)
			}
		}
		if a.conn.Cluster() {
			return fmt.Errorf("%w: %s is a Redis Cluster; redlock needs independent masters", driver.ErrInvalid, a.label)
		}
	}
	return nil
}

// same reports whether two connections are one, as far as it can be told.
func same(a, b redislock.Conn) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Traits returns what a majority of masters promises.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: "redlock", Leased: true, MaxTTL: e.cfg.MaxTTL}
}

var errClosed = errors.New("the engine was closed")

// begin begins a call of the engine; unless it returns an error, the caller says
// e.tasks.Done at the end. Goroutines that the call starts, with e.tasks.Go, may
// outlive it for as long as a request to a node may take.
func (e *Engine) begin() error {
	if e.wrong != nil {
		return e.wrong
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shut {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, errClosed)
	}
	e.tasks.Add(1)
	return nil
}

// Close ends the engine's subscriptions and its waits. Locks it holds stay until
// they expire; release them first. It waits for requests under way, 2 s at most.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.shut = true
	e.mu.Unlock()
	e.close()
	e.tasks.Wait()
	return nil
}

// Init declares all nodes new, so that they vote at once. Call it when nobody
// can hold a lock on them. It fails unless every node answers.
func (e *Engine) Init(ctx context.Context) error {
	if err := e.begin(); err != nil {
		return err
	}
	defer e.tasks.Done()
	if err := e.probeAll(ctx); err != nil {
		return err
	}
	var why causes
	answers := make(chan reply, len(e.nodes))
	e.broadcast(e.nodes, callLimit, answers, asking(e.call(e.lua.init, "init")))
	for range e.nodes {
		select {
		case r := <-answers:
			if r.Err != nil {
				why.add(e.nodes[r.node], r.Err)
			}
		case <-ctx.Done():
			return unavailable(ctx.Err())
		}
	}
	if len(why.errs) > 0 {
		return why.err()
	}
	return nil
}

// terms are those of a take or a renewal.
func (e *Engine) terms(mode driver.Mode, ttl time.Duration) quorum.Terms {
	return quorum.Terms{Nodes: len(e.nodes), TTL: ttl, Drift: drift(ttl), Shared: mode == driver.Shared}
}

// drift is what clocks may eat of a lease: a hundredth, and two milliseconds for
// the resolution of expiry on a node.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

var origin = time.Now()

// instant reads the clocks. The machine's suspended time is added by the holder.
func instant(t time.Time) hold.Instant {
	mono := t.Sub(origin)
	return hold.Instant{Mono: mono, Boot: mono, Wall: time.Duration(t.UnixNano())}
}
