package redlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/redislock"
)

// waitLife is for how long a name that is waited for stays noted in the index.
const waitLife = 10 * time.Second

// The scripts of the index, which every node has.
var (
	noteScript = redislock.NewScript(nameindex.NoteLua)
	pageScript = redislock.NewScript(nameindex.PageLua)
	dropScript = redislock.NewScript(nameindex.DropLua)
)

// note has a name noted in the nodes' indexes soon, if it still matters then. It is for
// calls of the engine.
func (e *Engine) note(n nameindex.Noted) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.index.Add(n, func() bool {
		if e.shut {
			return false
		}
		e.tasks.Go(func() { // ends when there is nothing to note, or with Close
			nameindex.Keep(e.closed, callLimit, e.dueNames, e.writeIndex)
		})
		return true
	})
}

// dueNames returns the names to note now, and whether there may be more.
func (e *Engine) dueNames() (due map[string]time.Duration, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.index.Due(e.closed.Err() != nil, func(n nameindex.Noted) bool {
		return e.holds.has(n.Owner) || e.queues.has(n.Name)
	})
}

// writeIndex notes names on every node that answers. Nobody needs to know whether that
// worked: the next renewal notes them again.
func (e *Engine) writeIndex(ctx context.Context, due map[string]time.Duration) {
	var args []string
	for name, life := range due {
		args = append(args, millis(life), name)
	}
	var refused atomic.Int32
	var all sync.WaitGroup
	for _, n := range e.nodes {
		if n.out.Load() != nil {
			continue
		}
		all.Go(func() { // ends with ctx
			replies := n.conn.Eval(ctx, e.indexCalls(noteScript, 2*nameindex.Size, args))
			if slices.ContainsFunc(replies, func(r redislock.Reply) bool { return denied(r.Err) }) {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if int(refused.Load()) >= e.need {
		e.mu.Lock()
		e.index.Refuse()
		e.mu.Unlock()
	}
}

// indexCalls makes calls with so many of the arguments, after some that all begin with.
func (e *Engine) indexCalls(s *redislock.Script, size int, args []string, begin ...string) (calls []redislock.Call) {
	for part := range slices.Chunk(args, size) {
		calls = append(calls, redislock.Call{Script: s, Keys: []string{e.cfg.Prefix + "fencelock:names"}, Args: append(slices.Clone(begin), part...)})
	}
	return calls
}

// indexed returns the names in the node's index.
func (n *node) indexed(ctx context.Context, q driver.Query) (found map[string]bool, err error) {
	found = map[string]bool{}
	for next := ""; next != "0"; {
		r := n.ask(ctx, n.engine.indexCalls(pageScript, 1, []string{max(next, "0")})...)[0]
		if r.Err != nil {
			return nil, r.Err
		}
		var page []string
		next, page = nameindex.Page(r.Text)
		for _, name := range page {
			if q.Matches(name) && driver.CheckName(name) == nil {
				found[name] = true
			}
		}
	}
	return found, nil
}

// drop takes names out of the node's index that were free at a time of the node's.
func (n *node) drop(ctx context.Context, free []string, at int64) {
	n.conn.Eval(ctx, n.engine.indexCalls(dropScript, nameindex.Size, free, nameindex.FreeUntil(at)))
}
