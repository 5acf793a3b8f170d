package redlock

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// nodeSet is the set of all masters, of which a majority decides.
type nodeSet struct {
	*client
	nodes []*node
	need  int   // a majority
	wrong error // why this set of nodes is invalid

	mu     sync.Mutex     // guards runIDs, and that two nodes do not claim the same server at once
	runIDs map[string]int // index of the node with a run id
}

// newNodeSet makes a nodeSet. New returns no error, so an invalid set is reported in wrong.
func newNodeSet(c *client, holds *holdings, nodes []Node) *nodeSet {
	s := &nodeSet{client: c, need: len(nodes)/2 + 1, runIDs: map[string]int{}}
	for i, of := range nodes {
		n := &node{client: c, set: s, holds: holds, index: i, conn: redisconn.ConnOf(of), label: "node " + strconv.Itoa(i+1), orphans: orphans{byOwner: map[string]orphan{}}}
		if i < len(c.cfg.Nodes) {
			n.label = c.cfg.Nodes[i]
		}
		s.nodes = append(s.nodes, n)
	}
	s.wrong = s.check()
	return s
}

// check validates the set as far as possible without I/O. An even number of nodes tolerates no more
// failures than the odd number below it. Two nodes on the same server would make a majority of
// fewer servers.
func (s *nodeSet) check() error {
	n := len(s.nodes)
	if n < 3 || n%2 == 0 {
		return fmt.Errorf("%w: redlock needs an odd number of masters, three or more, not %d", driver.ErrInvalid, n)
	}
	if len(s.cfg.Nodes) > 0 && len(s.cfg.Nodes) != n {
		return fmt.Errorf("%w: there are %d masters but %d names; give each master one name", driver.ErrInvalid, n, len(s.cfg.Nodes))
	}
	labels := slices.Sorted(slices.Values(s.cfg.Nodes))
	if len(slices.Compact(labels)) != len(s.cfg.Nodes) {
		return fmt.Errorf("%w: a master is named twice: %s", driver.ErrInvalid, strings.Join(s.cfg.Nodes, ", "))
	}
	for i, a := range s.nodes {
		for _, b := range s.nodes[:i] {
			if sameConn(a.conn, b.conn) {
				return fmt.Errorf("%w: the same connection is given for two masters", driver.ErrInvalid)
			}
		}
		if a.conn.Cluster() {
			return fmt.Errorf("%w: %s is a Redis Cluster; redlock needs independent masters", driver.ErrInvalid, a.label)
		}
	}
	return nil
}

// sameConn reports whether two connections are certainly the same.
func sameConn(a, b redisconn.Conn) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// leader returns the node whose messages wake waiters: the first one that is not left out.
func (s *nodeSet) leader() *node {
	for _, n := range s.nodes {
		if n.out.Load() == nil {
			return n
		}
	}
	return nil
}

// reply is the reply of one node.
type reply struct {
	node int
	sent time.Time // before the call was sent
	redisconn.Reply
}

// question makes a call to a node and returns its reply.
type question func(context.Context, *node) redisconn.Reply

// asking returns a question that makes the call c.
func asking(c redisconn.Call) question {
	return func(ctx context.Context, n *node) redisconn.Reply { return n.ask(ctx, c)[0] }
}

// broadcast asks nodes concurrently, without blocking. answers must have capacity for all replies,
// so that a late one blocks nothing and need not be received.
func (s *nodeSet) broadcast(nodes []*node, limit time.Duration, answers chan<- reply, ask question) {
	for _, n := range nodes {
		s.tasks.Spawn(func() { // ends when the node has answered, or with the limit
			sent := time.Now()
			answers <- reply{n.index, sent, ask(redisconn.WithDeadline(context.Background(), limit), n)}
		})
	}
}

// recognise records which server answered for a node. If it is that of another node, an address
// leads to the wrong server. The node is then left out until its address leads to a server of its
// own; otherwise one server would vote twice.
func (s *nodeSet) recognise(n *node, server uint64) error {
	if server == 0 || n.who.Load() == server {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.nodes {
		if o != n && o.who.Load() == server {
			err := sameServer(o, n)
			n.suitable.Store(false)
			n.who.Store(0) // another address may now lead to its former server
			n.leaveOut(err)
			return err
		}
	}
	n.who.Store(server)
	return nil
}

func sameServer(a, b *node) error {
	return badNodeError{fmt.Errorf("%w: %s and %s are the same server", driver.ErrConfig, a.label, b.label)}
}
