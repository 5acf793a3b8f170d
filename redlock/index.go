package redlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// waitLife is for how long a name that is waited for stays noted in the index.
const waitLife = 10 * time.Second

// The scripts of the index, which every node has.
var (
	noteScript = redisconn.NewScript(nameindex.NoteLua)
	pageScript = redisconn.NewScript(nameindex.PageLua)
	dropScript = redisconn.NewScript(nameindex.DropLua)
)

// nameIndex notes the names that are held, or waited for, in the nodes' indexes, which
// List reads. Acquires and renewals do not wait for that.
type nameIndex struct {
	*client
	set    *nodeSet
	holds  *holdings
	queues *localQueues

	mu    sync.Mutex // guards notes
	notes nameindex.Notes
}

// note has a name noted soon, if it still matters then. It is for calls of the engine,
// and does nothing after Close.
func (x *nameIndex) note(n nameindex.Noted) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.notes.Add(n, func() bool {
		if x.begin() != nil {
			return false
		}
		x.spawn(func() { // ends when there is nothing to note, or with Close
			nameindex.Keep(x.closed, callLimit, x.due, x.write)
		})
		x.leave()
		return true
	})
}

// due returns the names to note now, and whether there may be more.
func (x *nameIndex) due() (names map[string]time.Duration, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.notes.Due(x.closed.Err() != nil, func(n nameindex.Noted) bool {
		return x.holds.has(n.Owner) || x.queues.has(n.Name)
	})
}

// write notes names on every node that answers. Nobody needs to know whether that
// worked: the next renewal notes them again.
func (x *nameIndex) write(ctx context.Context, due map[string]time.Duration) {
	var args []string
	for name, life := range due {
		args = append(args, redisfmt.Millis(life), name)
	}
	var refused atomic.Int32
	var all sync.WaitGroup
	for _, n := range x.set.nodes {
		if n.out.Load() != nil {
			continue
		}
		all.Go(func() { // ends with ctx
			replies := n.conn.Eval(ctx, x.indexCalls(noteScript, 2*nameindex.Size, args))
			if slices.ContainsFunc(replies, func(r redisconn.Reply) bool { return redisconn.Denied(r.Err) }) {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if int(refused.Load()) >= x.set.need {
		x.mu.Lock()
		x.notes.Refuse()
		x.mu.Unlock()
	}
}

// indexCalls makes calls with so many of the arguments, after some that all begin with.
// A call with all names of a large client would keep a node from others for long.
func (c *client) indexCalls(s *redisconn.Script, size int, args []string, first ...string) (calls []redisconn.Call) {
	for part := range slices.Chunk(args, size) {
		calls = append(calls, redisconn.Call{Script: s, Keys: []string{c.cfg.Prefix + "fencelock:names"}, Args: append(slices.Clone(first), part...)})
	}
	return calls
}
