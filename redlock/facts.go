package redlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/redisinspect"
)

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

// pings is how many round trips are measured, of which the median counts.
const pings = 10

// collect asks a node everything. Half of it may be refused, and is a finding then.
func collect(ctx context.Context, n *node) *nodeFacts {
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
		s.info = redisfmt.ParseInfo(text)
	}
	s.fsync, s.save = s.setting(ctx, "appendfsync"), s.setting(ctx, "save")
	s.compareClock(ctx)
	r := n.conn.Eval(ctx, []redisconn.Call{n.call(n.lua.inspect, "fencelock-doctor")})[0]
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
	v := redisinspect.ReadSetting(redisconn.Answer{Text: text, Err: err})
	if v.Err != nil {
		return "unknown"
	}
	return v.Value
}

// compareClock compares the node's clock with ours. The answer was made somewhere
// between question and answer, so half the round trip is the doubt.
func (s *nodeFacts) compareClock(ctx context.Context) {
	begun := time.Now()
	text, err := s.ask(ctx, "TIME")
	s.doubt = time.Since(begun) / 2
	if now, ok := redisfmt.ParseTime(text); err == nil && ok {
		s.told = true
		s.ahead = now.Sub(begun.Add(s.doubt))
	}
}
