package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/redisinspect"
)

// Inspect checks the nodes and the user's permissions for anything that weakens the guarantees of
// locks with the given TTL. It acquires locks under probe names on each node, whose keys expire
// within ten seconds. It returns an error if no node answers. An unreachable node is reported as a
// finding.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.tasks.Leave()
	looks := make([]nodeFacts, len(e.set.nodes))
	var all sync.WaitGroup
	for i, n := range e.set.nodes {
		all.Go(func() { looks[i] = n.inspect(ctx, ttl) })
	}
	all.Wait()
	var why nodeErrors
	for _, l := range looks {
		if l.err != nil {
			why.add(l.node, l.err)
		}
	}
	if len(why.errs) == len(looks) {
		return nil, why.joined()
	}
	looks = slices.DeleteFunc(looks, func(l nodeFacts) bool { return l.err != nil })
	findings := []driver.Finding{e.set.there(why.errs), independence(looks), clocks(looks)}
	if e.cfg.NoQuarantine {
		findings = append(findings, inspect.Found("quarantine", driver.Warning, "off", "a node that has lost its locks may grant them to a second holder while the first one still holds them",
			"turn it on, and guard the data with fencing tokens"))
	}
	return append(findings, e.set.together(looks)...), nil
}

// nodeFacts is the result of inspecting one node.
type nodeFacts struct {
	node     *node
	err      error // the node does not answer
	server   redisinspect.Server
	clock    inspect.Clock
	clockErr error
	found    []driver.Finding
}

// inspect inspects one node like a single Redis, with an engine on this node only. It uses the
// scripts of the whole set, so that it finds the marker key that they expect.
func (n *node) inspect(ctx context.Context, ttl time.Duration) nodeFacts {
	l := nodeFacts{node: n}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	servers, err := redisinspect.Ask(limited, n.conn)
	if err == nil && len(servers) != 1 {
		err = fmt.Errorf("the connection leads to %d masters instead of one", len(servers))
	}
	if l.err = err; err != nil {
		return l
	}
	l.server = servers[0]
	l.clock, l.clockErr = inspect.ReadClock(func() (time.Time, time.Time, error) { return n.time(limited) })
	cfg := n.cfg
	cfg.Retention = 2 * inspect.LeaseTTL(ttl, n.cfg.traits())
	probe := newEngine([]Node{redisconn.NodeOf(n.conn)}, cfg, len(n.set.nodes))
	probe.acquirer.names.Write = nameindex.Nothing // keep the probe names out of the index
	probe.set.wrong, probe.set.nodes[0].label = nil, n.label
	t := inspect.Trial{Engine: probe, Name: inspect.NewName(), TTL: ttl, Denied: redisconn.Denied, Grant: n.grant(), Lacks: redisconn.Lacks, Supply: redisinspect.Supply}
	l.found, l.err = t.Run(ctx)
	_ = probe.Close() // it holds nothing
	asking, end := context.WithTimeout(ctx, callLimit)
	defer end()
	l.found = append(l.found, redisinspect.Commands(asking, n.conn, scriptRights, n.cfg.Prefix+"lock:"+t.Name+"-command", n.cfg.channel(), n.grant())...)
	rules := redisinspect.Rules{Quarantine: !n.cfg.NoQuarantine, Independent: true}
	l.found = append(l.found, rules.Judge(l.server)...)
	return l
}

// time returns the node's time.
func (n *node) time(ctx context.Context) (at, same time.Time, err error) {
	answers, err := n.conn.Each(ctx, "TIME")
	if err != nil || len(answers) != 1 {
		return at, at, cmp.Or(err, driver.ErrUnavailable)
	}
	at, ok := redisfmt.ParseTime(answers[0].Text)
	if !ok {
		return at, at, cmp.Or(answers[0].Err, driver.ErrUnavailable)
	}
	return at, at, nil
}

// there checks how many nodes answer.
func (s *nodeSet) there(down []error) driver.Finding {
	all, there := len(s.nodes), len(s.nodes)-len(down)
	saw := fmt.Sprintf("%d of %d answer", there, all)
	for _, err := range down {
		saw += "; " + err.Error()
	}
	switch {
	case len(down) == 0:
		return inspect.Passed("nodes", saw)
	case there < s.need:
		return inspect.Found("nodes", driver.Broken, saw, fmt.Sprintf("no lock can be acquired, and held locks are lost: %d nodes must answer", s.need), "restore the other nodes")
	}
	return inspect.Found("nodes", driver.Warning, saw, fmt.Sprintf("if fewer than %d nodes answer, all locks are lost", s.need), "restore the other nodes")
}

// independence checks whether two nodes are the same server, which would have two votes.
func independence(looks []nodeFacts) driver.Finding {
	const check = "independence"
	servers := map[string]string{}
	for _, l := range looks {
		id := l.server.Info["run_id"]
		if id == "" {
			return inspect.Unchecked(check, fmt.Errorf("%s does not report its run id", l.node.label), "allow the user to run INFO: ACL SETUSER name +info")
		}
		if other, twice := servers[id]; twice {
			return inspect.Found(check, driver.Broken, fmt.Sprintf("%s and %s are the same server", other, l.node.label),
				"it would vote twice, and one failure would lose the data of two nodes; redlock refuses such nodes", "use independent masters")
		}
		servers[id] = l.node.label
	}
	return inspect.Passed(check, "every node is a separate server")
}

// clocks checks the difference between the nodes' clocks.
func clocks(looks []nodeFacts) driver.Finding {
	const check = "clocks"
	for _, l := range looks {
		if l.clockErr != nil {
			return inspect.Unchecked(check, fmt.Errorf("%s: %w", l.node.label, l.clockErr), "allow the user to run TIME: ACL SETUSER name +time")
		}
	}
	byClock := func(a, b nodeFacts) int { return cmp.Compare(a.clock.Ahead, b.clock.Ahead) }
	first, last := slices.MinFunc(looks, byClock), slices.MaxFunc(looks, byClock)
	apart, doubt := last.clock.Ahead-first.clock.Ahead, first.clock.Doubt+last.clock.Doubt
	saw := fmt.Sprintf("the nodes' clocks are %v apart, give or take %v", inspect.Short(apart), inspect.Short(doubt))
	if apart-doubt <= ahead { // if it is larger, some nodes reject the tokens that clients propose
		return inspect.Passed(check, saw)
	}
	return inspect.Found(check, driver.Warning, fmt.Sprintf("%s (%s is behind %s)", saw, first.node.label, last.node.label),
		"tokens may decrease when nodes lose their data, and every acquisition needs a second round trip",
		"synchronize the clocks with NTP, and slew them instead of stepping them")
}

// together combines the findings of the nodes. A node that grants nothing at present is only a
// warning as long as a majority grants.
func (s *nodeSet) together(looks []nodeFacts) []driver.Finding {
	var places []string
	var found [][]driver.Finding
	grant := 0
	for _, l := range looks {
		places, found = append(places, l.node.label), append(found, l.found)
		if l.found[0].Severity == driver.Good {
			grant++
		}
	}
	for _, l := range looks {
		if first := &l.found[0]; first.Severity == driver.Broken && grant >= s.need {
			first.Severity, first.Impact = driver.Warning, fmt.Sprintf("locks work while %d nodes grant", s.need)
		}
	}
	return inspect.Together(places, found)
}

// scriptRights are the commands that the engine runs, as an ACL rule.
const scriptRights = "+eval +evalsha +get +mget +set +del +exists +pttl +pexpire +pexpireat +zadd +zrem +zrange +zrevrange +zrangebyscore +zscore +hget +hset +hdel " +
	"+time +info +publish +subscribe +unsubscribe +ping +scan +zscan"

// grant returns the command that gives a user the permissions that the engine needs.
func (c *client) grant() string {
	rule := "ACL SETUSER name &" + c.cfg.channel() + " ~" + c.cfg.Prefix + "lock:*"
	for _, prefix := range companions {
		rule += " ~" + prefix + "*"
	}
	return rule + " ~" + c.cfg.Prefix + "fencelock:node ~" + c.cfg.Prefix + "fencelock:names " + scriptRights
}
