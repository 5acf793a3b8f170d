package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// probeAll probes every node that was not probed before, and returns what is wrong with the set.
// Nodes that do not answer are left out, and probed when they are back.
func (s *nodeSet) probeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, meetLimit)
	defer cancel()
	var met sync.WaitGroup
	for _, n := range s.nodes {
		if !n.suitable.Load() && n.out.Load() == nil {
			met.Go(func() { _ = n.probe(ctx) }) // ends with ctx; a failure is in n.out
		}
	}
	met.Wait()
	for _, n := range s.nodes {
		if o := n.out.Load(); o != nil && o.unsuitable {
			return o.cause
		}
	}
	return nil
}

// Init marks all nodes as new; see [Engine.Init].
func (s *nodeSet) Init(ctx context.Context) error {
	if err := s.probeAll(ctx); err != nil {
		return err
	}
	var why nodeErrors
	answers := make(chan reply, len(s.nodes))
	s.broadcast(s.nodes, callLimit, answers, asking(s.call(s.lua.init, "init")))
	for range s.nodes {
		select {
		case r := <-answers:
			if r.Err != nil {
				why.add(s.nodes[r.node], r.Err)
			}
		case <-ctx.Done():
			return unavailable(ctx.Err())
		}
	}
	if len(why.errs) > 0 {
		return why.joined()
	}
	return nil
}

// probe checks whether the node is an independent master that keeps its data. A node that is not,
// or does not answer, is left out.
func (n *node) probe(ctx context.Context) error {
	err := n.examine(ctx)
	if err == nil {
		n.suitable.Store(true)
		n.wasSuitable.Store(true)
		return nil
	}
	n.leaveOut(err)
	return err
}

// examine checks the server. It returns a badNodeError if only another server can help, and other
// errors if a later attempt may succeed.
func (n *node) examine(ctx context.Context) error {
	answers, err := n.conn.Each(ctx, "INFO")
	switch {
	case err != nil:
		return err
	case len(answers) != 1:
		return badNodeError{fmt.Errorf("%w: %s has %d masters behind it; redlock needs one each", driver.ErrConfig, n.label, len(answers))}
	}
	// Read the clock before the first request, which needs it for its deadline.
	if err := n.readClock(ctx); err != nil {
		return err
	}
	if err := answers[0].Err; err != nil {
		switch _, words := errors.AsType[redisconn.ServerError](err); {
		case words && n.cfg.NoQuarantine:
			return nil // without the quarantine it need not be known
		case words:
			return fmt.Errorf("it is unknown whether it has lost locks; grant this user +info: %w", err)
		}
		return err
	}
	info := redisfmt.ParseInfo(answers[0].Text)
	if err := n.checkInfo(info); err != nil {
		return badNodeError{err}
	}
	return n.set.register(n, info["run_id"])
}

// readClock reads the node's clock. It ignores a refusal, since script replies also contain the
// time.
func (n *node) readClock(ctx context.Context) error {
	sent := time.Now()
	answers, err := n.conn.Each(ctx, "TIME")
	if err == nil && len(answers) > 0 {
		if unknown(answers[0].Err) {
			return answers[0].Err
		}
		if at, ok := redisfmt.ParseTime(answers[0].Text); ok {
			n.clock.showed(at.UnixMicro(), sent)
		}
	}
	return err
}

// checkInfo returns what is wrong with a server. A replica loses what is written to it. A node of a
// Cluster refuses most names. A server that evicts keys loses held locks without a trace.
func (n *node) checkInfo(info map[string]string) error {
	switch {
	case info["role"] != "master":
		return fmt.Errorf("%w: %s is a replica of %s:%s; redlock needs independent masters", driver.ErrConfig, n.label, info["master_host"], info["master_port"])
	case info["cluster_enabled"] == "1":
		return fmt.Errorf("%w: %s is a node of a Redis Cluster; redlock needs independent masters", driver.ErrConfig, n.label)
	case !n.cfg.AllowEviction && info["maxmemory"] != "0" && info["maxmemory_policy"] != "noeviction":
		return fmt.Errorf("%w: %s evicts keys, locks included, when its memory is full (maxmemory-policy %s); set maxmemory-policy to noeviction, or allow eviction (AllowEviction, eviction=allow in a URL)", driver.ErrConfig, n.label, info["maxmemory_policy"])
	}
	return nil
}

// register records a node's run id, unless another node has the same. It first removes the node's
// last one, because the run id changes with every start of the server.
func (s *nodeSet) register(n *node, runID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.runIDs, func(_ string, i int) bool { return i == n.index })
	if i, ok := s.runIDs[runID]; ok {
		s.nodes[i].suitable.Store(false) // the other node's address may lead to a server of its own by now, so it is probed again
		return sameServer(s.nodes[i], n)
	}
	s.runIDs[runID] = n.index
	return nil
}
