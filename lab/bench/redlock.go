package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redlock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
)

// redlockTTL is redsync's default, from which its time limits follow.
const redlockTTL = 8 * time.Second

// redlockSuite is redlock and redsync on n nodes. The bars are for five.
func redlockSuite(n int) suite {
	s := suite{
		name:  fmt.Sprint("redlock", n),
		title: fmt.Sprintf("Redlock on %d nodes", n),
		notes: "`bare` sends `SET NX PX` and a script that compares and deletes to all nodes at once, and waits\n" +
			"for a majority. For the hand-over, it is one PUBLISH on one node. `redsync` has its default\n" +
			"settings. With its option `fail-fast`, it continues as soon as a majority has answered. Leases are\n" +
			"redsync's default, " + redlockTTL.String() + ". Neither has fencing tokens. In the rows about a slow or frozen node, the\n" +
			"other nodes are a majority. redsync is faster while nothing fails: it sends each node one SET and\n" +
			"one script of two commands. fencelock also checks whether a node has lost data (INFO), whether the\n" +
			"request was withdrawn, and who waits, and stores a token: 9 commands instead of 3.\n",
		contestants: []contestant{
			{name: bare, open: openBareNodes},
			{name: ours, open: openOursOnNodes, renews: true},
			{name: "redsync", open: openRedsyncNodes(redsync.WithExpiry(redlockTTL))},
			{name: "redsync fail-fast", open: openRedsyncNodes(redsync.WithExpiry(redlockTTL), redsync.WithFailFast(true))},
		},
		signal:   contestant{name: "publish", open: openPublisher, wait: openSubscriber},
		measures: []measure{{"alone", alone}, {"handover", handover}, {"slow", slow}, {"frozen", frozen}},
		per:      200,
		start:    func() (server, error) { return startNodes(n) },
	}
	if n == 5 {
		s.bars = map[string][]bar{
			"alone":    {atMost("redsync", 1)},
			"handover": {atLeastTimesFaster("redsync", 20)},
			"frozen":   {atLeastTimesFaster("redsync", 10)},
		}
	}
	return s
}

// nodeClients are clients of all nodes.
func (p *process) nodeClients() ([]rueidis.Client, error) {
	var clients []rueidis.Client
	for addr := range strings.SplitSeq(p.addr, ",") {
		rdb, err := p.rueidisAt(addr)
		if err != nil {
			return nil, err
		}
		clients = append(clients, rdb)
	}
	return clients, nil
}

func redlockEngine(p *process) (*redlock.Engine, error) {
	clients, err := p.nodeClients()
	if err != nil {
		return nil, err
	}
	var conns []redlock.Node
	for _, rdb := range clients {
		conns = append(conns, redlock.Rueidis(rdb))
	}
	return redlock.New(conns, nil), nil
}

func openOursOnNodes(p *process) (client, error) {
	engine, err := redlockEngine(p)
	if err != nil {
		return nil, err
	}
	return ourClient{fencelock.New(engine, nil).With(fencelock.Options{TTL: redlockTTL}), func() { _ = engine.Close() }}, nil
}

func openRedsyncNodes(options ...redsync.Option) func(*process) (client, error) {
	return func(p *process) (client, error) {
		var pools []redsyncredis.Pool
		for addr := range strings.SplitSeq(p.addr, ",") {
			rdb, err := p.goredisAt(addr)
			if err != nil {
				return nil, err
			}
			pools = append(pools, redsyncpool.NewPool(rdb))
		}
		return redsyncClient{redsync.New(pools...), options}, nil
	}
}

// bareNodes sends the two commands to all nodes and waits for a majority.
type bareNodes []rueidis.Client

func openBareNodes(p *process) (client, error) {
	clients, err := p.nodeClients()
	return bareNodes(clients), err
}

func (nodes bareNodes) acquire(_ context.Context, name string) (lock, error) {
	owner := rand.Text()
	l := bareNodesLock{nodes, "bare:" + name + owner, owner} // a SET that comes late is in nobody's way
	return l, nodes.majority(func(rdb rueidis.Client) error {
		return rdb.Do(context.Background(), rdb.B().Set().Key(l.key).Value(l.owner).Nx().PxMilliseconds(redlockTTL.Milliseconds()).Build()).Error()
	})
}

// majority asks all nodes at once and returns when more than half agree.
func (nodes bareNodes) majority(ask func(rueidis.Client) error) error {
	answers := make(chan error, len(nodes))
	for _, rdb := range nodes {
		go func() { answers <- ask(rdb) }() // ends with the answer
	}
	agreed := 0
	for range nodes {
		if err := <-answers; err == nil {
			agreed++
		}
		if agreed > len(nodes)/2 {
			return nil
		}
	}
	return errors.New("no majority")
}

func (bareNodes) close() {}

type bareNodesLock struct {
	nodes      bareNodes
	key, owner string
}

func (l bareNodesLock) release() error {
	return l.nodes.majority(func(rdb rueidis.Client) error {
		return bareLock{rdb, l.key, l.owner}.release()
	})
}

func (bareNodesLock) err() error { return nil }
