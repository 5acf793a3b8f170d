package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// redisNodes are several independent redis-servers.
type redisNodes []*redisServer

// startNodes starts n servers and declares them new, so that they vote at once.
func startNodes(n int) (server, error) {
	var nodes redisNodes
	for range n {
		srv, err := startRedis()
		if err != nil {
			nodes.stop()
			return nil, err
		}
		nodes = append(nodes, srv.(*redisServer))
	}
	p := &process{addr: nodes.addr()}
	defer p.close()
	engine, err := redlockEngine(p)
	if err == nil {
		err = errors.Join(engine.Init(context.Background()), engine.Close())
	}
	if err != nil {
		nodes.stop()
		return nil, err
	}
	return nodes, nil
}

func (nodes redisNodes) addr() string { return strings.Join(nodes.addrs(), ",") }

func (nodes redisNodes) addrs() []string {
	var addrs []string
	for _, s := range nodes {
		addrs = append(addrs, s.addr())
	}
	return addrs
}

func (nodes redisNodes) version() string {
	return fmt.Sprintf("%d x %s", len(nodes), nodes[0].version())
}

func (nodes redisNodes) stop() {
	for _, s := range nodes {
		s.stop()
	}
}

// freeze stops the last node, which keeps its connections.
func (nodes redisNodes) freeze() (thaw func(), err error) {
	last := nodes[len(nodes)-1].cmd.Process
	return func() { _ = last.Signal(syscall.SIGCONT) }, last.Signal(syscall.SIGSTOP)
}
