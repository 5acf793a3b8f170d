package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// badNodeError is why a server is not what redlock needs.
type badNodeError struct{ error }

func (u badNodeError) Unwrap() error { return u.error }

// probeAll asks every node that was never asked before who it is, and returns
// what is wrong with the set. Nodes that do not answer are left out, and asked
// when they are back.
func (e *Engine) probeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, meetLimit)
	defer cancel()
	var met []chan struct{}
	for _, n := range e.nodes {
		if !n.fit.Load() && n.out.Load() == nil {
			done := make(chan struct{})
			met = append(met, done)
			e.tasks.Go(func() { // ends with ctx
				defer close(done)
				_ = n.probe(ctx) // n.out says so
			})
		}
	}
	for _, done := range met {
		<-done
	}
	for _, n := range e.nodes {
		if o := n.out.Load(); o != nil && o.unfit {
			return o.cause
		}
	}
	return nil
}

// probe finds out whether the node is an independent master that keeps what it is
// told. One that is not, or does not answer, is left out.
func (n *node) probe(ctx context.Context) error {
	err := n.examine(ctx)
	if err == nil {
		n.fit.Store(true)
		n.knew.Store(true)
		return nil
	}
	n.leaveOut(err)
	return err
}

func (n *node) examine(ctx context.Context) error {
	answers, err := n.conn.Each(ctx, "INFO")
	switch {
	case err != nil:
		return err
	case len(answers) != 1:
		return badNodeError{fmt.Errorf("%w: %s has %d masters behind it; redlock needs one each", driver.ErrConfig, n.label, len(answers))}
	}
	if err := n.tell(ctx); err != nil {
		return err
	}
	if err := answers[0].Err; err != nil {
		switch _, words := errors.AsType[redislock.ServerError](err); {
		case words && n.engine.cfg.NoQuarantine:
			return nil // nobody can tell, and nobody wants to know
		case words:
			return fmt.Errorf("nobody can tell whether it has forgotten locks: grant this user +info: %w", err)
		}
		return err
	}
	info := parseInfo(answers[0].Text)
	if err := n.checkInfo(info); err != nil {
		return badNodeError{err}
	}
	return n.engine.register(n, info["run_id"])
}

// tell reads the node's clock. What the node may refuse, the scripts will tell.
func (n *node) tell(ctx context.Context) error {
	sent := time.Now()
	answers, err := n.conn.Each(ctx, "TIME")
	if err == nil && len(answers) > 0 {
		n.showed(parseTime(answers[0].Text), sent)
	}
	return err
}

// checkInfo says what is wrong with a server.
func (n *node) checkInfo(info map[string]string) error {
	switch {
	case info["role"] != "master":
		return fmt.Errorf("%w: %s is a replica of %s:%s; redlock needs independent masters", driver.ErrConfig, n.label, info["master_host"], info["master_port"])
	case info["cluster_enabled"] == "1":
		return fmt.Errorf("%w: %s is a node of a Redis Cluster; redlock needs independent masters", driver.ErrConfig, n.label)
	case !n.engine.cfg.AllowEviction && info["maxmemory"] != "0" && info["maxmemory_policy"] != "noeviction":
		return fmt.Errorf("%w: %s evicts keys when memory is full (maxmemory-policy %s), and locks with them; set noeviction, or allow eviction", driver.ErrConfig, n.label, info["maxmemory_policy"])
	}
	return nil
}

// register notes a node's run id, unless another node has the same.
func (e *Engine) register(n *node, runID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.servers, func(_ string, i int) bool { return i == n.index })
	if i, ok := e.servers[runID]; ok {
		return sameServer(e.nodes[i], n)
	}
	e.servers[runID] = n.index
	return nil
}

func sameServer(a, b *node) error {
	return badNodeError{fmt.Errorf("%w: %s and %s are the same server", driver.ErrConfig, a.label, b.label)}
}

// recognise notes which server answered for the node. If that is another node's, an
// address leads to the wrong server: this one is left out until it leads to one of
// its own.
func (n *node) recognise(server uint64) error {
	if server == 0 || n.who.Load() == server {
		return nil
	}
	e := n.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.nodes {
		if o != n && o.who.Load() == server {
			err := sameServer(o, n)
			n.fit.Store(false)
			n.leaveOut(err)
			return err
		}
	}
	n.who.Store(server)
	return nil
}

// parseInfo reads an answer to INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info
}
