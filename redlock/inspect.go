package redlock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// Inspect looks for what in the nodes weakens the promises of locks with the
// given TTL. It changes nothing on them. The error is for a set of nodes of which
// none answers; one that is down is a finding.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	if err := e.begin(); err != nil {
		return nil, err
	}
	defer e.tasks.Done()
	in := &inspection{engine: e, ttl: ttl, seen: make([]*nodeFacts, len(e.nodes))}
	var all sync.WaitGroup
	for i, n := range e.nodes {
		all.Go(func() { in.seen[i] = n.collect(ctx) })
	}
	all.Wait()
	var why causes
	for _, s := range in.seen {
		if s.err != nil {
			why.add(s.node, s.err)
		}
	}
	if len(why.errs) == len(e.nodes) {
		return nil, why.err()
	}
	return []driver.Finding{
		in.answers(&why), in.independence(), in.votes(), in.worst((*nodeFacts).eviction),
		in.worst(in.persistence), in.clocks(), in.latency(),
	}, nil
}

// inspection is one Inspect and what it has learned.
type inspection struct {
	engine *Engine
	ttl    time.Duration
	seen   []*nodeFacts
}

// nodeFacts is what one node shows.
type nodeFacts struct {
	node   *node
	err    error // it does not answer
	info   map[string]string
	denied error // why info is empty
	fsync  string
	save   string
	ahead  time.Duration // its clock, of ours
	doubt  time.Duration
	told   bool // its clock is known
	trip   time.Duration
	votes  string
}

const pings = 10

// collect asks the node everything.
func (n *node) collect(ctx context.Context) *nodeFacts {
	s := &nodeFacts{node: n}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	s.err = s.ping(ctx)
	if s.err != nil {
		return s
	}
	if text, err := s.ask(ctx, "INFO"); err != nil {
		s.denied = err
	} else {
		s.info = parseInfo(text)
	}
	s.fsync, s.save = s.setting(ctx, "appendfsync"), s.setting(ctx, "save")
	s.clock(ctx)
	r := n.conn.Eval(ctx, []redislock.Call{n.engine.call(n.engine.lua.inspect, "fencelock-doctor")})[0]
	if s.votes = r.Text; r.Err != nil {
		s.votes = r.Err.Error()
	}
	return s
}

// ask sends one command.
func (s *nodeFacts) ask(ctx context.Context, args ...string) (string, error) {
	answers, err := s.node.conn.Each(ctx, args...)
	switch {
	case err != nil:
		return "", err
	case len(answers) != 1:
		return "", fmt.Errorf("%d masters behind one connection", len(answers))
	}
	return answers[0].Text, answers[0].Err
}

// ping measures a few round trips. A server that refuses to answer is there.
func (s *nodeFacts) ping(ctx context.Context) error {
	var took []time.Duration
	for range pings {
		begun := time.Now()
		if _, err := s.ask(ctx, "PING"); unknown(err) {
			return err
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	s.trip = took[len(took)/2]
	return nil
}

// setting reads one setting; a server that hides it says "unknown".
func (s *nodeFacts) setting(ctx context.Context, name string) string {
	text, err := s.ask(ctx, "CONFIG", "GET", name)
	_, value, ok := strings.Cut(text, "\n")
	if err != nil || !ok {
		return "unknown"
	}
	return strings.TrimSpace(value)
}

// clock compares the node's clock with ours. The answer was made somewhere
// between question and answer, so half the round trip is the doubt.
func (s *nodeFacts) clock(ctx context.Context) {
	begun := time.Now()
	text, err := s.ask(ctx, "TIME")
	s.doubt = time.Since(begun) / 2
	if now := parseTime(text); err == nil && now > 0 {
		s.told = true
		s.ahead = time.UnixMicro(now).Sub(begun.Add(s.doubt))
	}
}
