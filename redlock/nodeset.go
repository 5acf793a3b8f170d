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

// nodeSet is all masters, of which a majority decides.
type nodeSet struct {
	*client
	nodes []*node
	need  int   // a majority
	wrong error // why this set of nodes is no good

	mu     sync.Mutex     // guards runIDs, and that no two nodes take the name of one server at once
	runIDs map[string]int // which node has a run id
}

// newNodeSet makes the nodes of those that the caller has. A set that is no good is one all the
// same, and says so in wrong: New returns no error.
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

// check returns what can be said against the nodes without asking them. An even number
// would survive no more failures than the odd one below it, and two nodes that are one
// would make a majority of fewer servers.
func (s *nodeSet) check() error {
	n := len(s.nodes)
	if n < 3 || n%2 == 0 {
		return fmt.Errorf("%w: redlock needs an odd number of masters, three or more, not %d", driver.ErrInvalid, n)
	}
	if len(s.cfg.Nodes) > 0 && len(s.cfg.Nodes) != n {
		return fmt.Errorf("%w: %d masters have %d names", driver.ErrInvalid, n, len(s.cfg.Nodes))
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

// sameConn reports whether two connections are one, as far as it can be told.
func sameConn(a, b redisconn.Conn) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// leader returns the node whose news wakes waiters: the first that answers.
func (s *nodeSet) leader() *node {
	for _, n := range s.nodes {
		if n.out.Load() == nil {
			return n
		}
	}
	return nil
}

// reply is what one node said.
type reply struct {
	node int
	sent time.Time // before it was asked
	redisconn.Reply
}

// question is put to a node.
type question func(context.Context, *node) redisconn.Reply

// asking is a call as a question.
func asking(c redisconn.Call) question {
	return func(ctx context.Context, n *node) redisconn.Reply { return n.ask(ctx, c)[0] }
}

// broadcast puts a question to nodes at once, without blocking. The answers go to
// answers, which has room for them: a node that answers late blocks nobody, and nobody
// need be there to hear it.
func (s *nodeSet) broadcast(nodes []*node, limit time.Duration, answers chan<- reply, ask question) {
	for _, n := range nodes {
		s.tasks.Spawn(func() { // ends when the node has answered, or with the limit
			sent := time.Now()
			answers <- reply{n.index, sent, ask(redisconn.WithDeadline(context.Background(), limit), n)}
		})
	}
}

// recognise notes which server answered for the node. If that is another node's, an
// address leads to the wrong server: this one is left out until it leads to one of
// its own, or one server would vote twice.
func (s *nodeSet) recognise(n *node, server uint64) error {
	if server == 0 || n.who.Load() == server {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.nodes {
		if o != n && o.who.Load() == server {
			err := sameServer(o, n)
			n.fit.Store(false)
			n.who.Store(0) // another address may lead to the server that it was
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
