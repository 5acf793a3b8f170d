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

// waitLife is how long the index keeps a name that somebody waits for.
const waitLife = 10 * time.Second

// The scripts of the index, which every node has.
var (
	noteScript = redisconn.NewScript(nameindex.NoteLua)
	pageScript = redisconn.NewScript(nameindex.PageLua)
	dropScript = redisconn.NewScript(nameindex.DropLua)
)

// nameIndex adds the names that are held or waited for to the nodes' indexes, which List reads.
// Acquires and renewals do not wait for that.
type nameIndex struct {
	*client
	nameindex.Notes
	set *nodeSet
}

func newNameIndex(c *client, set *nodeSet, matters func(nameindex.Noted) bool) *nameIndex {
	x := &nameIndex{client: c, set: set}
	x.Tasks, x.AtClose, x.Matters, x.Write = c.tasks, callLimit, matters, x.write
	return x
}

// write adds names to the index of every node that answers.
func (x *nameIndex) write(ctx context.Context, due map[string]time.Duration) (refused bool) {
	var args []string
	for name, life := range due {
		args = append(args, redisfmt.Millis(life), name)
	}
	var denied atomic.Int32
	var all sync.WaitGroup
	for _, n := range x.set.nodes {
		if n.out.Load() != nil {
			continue
		}
		all.Go(func() { // ends with ctx
			replies := n.conn.Eval(ctx, x.indexCalls(noteScript, 2*nameindex.Size, args))
			if slices.ContainsFunc(replies, func(r redisconn.Reply) bool { return redisconn.Denied(r.Err) }) {
				denied.Add(1)
			}
		})
	}
	all.Wait()
	return int(denied.Load()) >= x.set.need
}

// indexCalls splits arguments into calls of at most size arguments, each beginning with first. One
// call with all names of a large client would block the node for long.
func (c *client) indexCalls(s *redisconn.Script, size int, args []string, first ...string) (calls []redisconn.Call) {
	for part := range slices.Chunk(args, size) {
		calls = append(calls, redisconn.Call{Script: s, Keys: []string{c.cfg.Prefix + "fencelock:names"}, Args: append(slices.Clone(first), part...)})
	}
	return calls
}
