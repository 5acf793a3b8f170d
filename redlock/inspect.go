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

// Inspect looks for what in the nodes, or in the rights of the user, weakens the promises of
// locks with the given TTL. It uses an engine on each node, on probe names, whose
// keys expire within ten seconds. The error is for a set of nodes of which none answers; one that is down is a finding.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.tasks.Leave()
	looks := make([]sighting, len(e.set.nodes))
	var all sync.WaitGroup
	for i, n := range e.set.nodes {
		all.Go(func() { looks[i] = n.inspect(ctx, ttl) })
	}
	all.Wait()
	var why causes
	for _, l := range looks {
		if l.err != nil {
			why.add(l.node, l.err)
		}
	}
	if len(why.errs) == len(looks) {
		return nil, why.joined()
	}
	looks = slices.DeleteFunc(looks, func(l sighting) bool { return l.err != nil })
	findings := []driver.Finding{e.set.there(why.errs), independence(looks), clocks(looks)}
	if e.cfg.NoQuarantine {
		findings = append(findings, inspect.Found("quarantine", driver.Warning, "off", "a node that forgot its locks lets a second holder in while the first believes in its lock",
			"turn it on, and guard the data with fencing tokens"))
	}
	return append(findings, e.set.together(looks)...), nil
}

// sighting is what an inspection saw of one node.
type sighting struct {
	node     *node
	err      error // it does not answer
	server   redisinspect.Server
	clock    inspect.Clock
	clockErr error
	found    []driver.Finding
}

// inspect looks at one node as at a single Redis: its settings, and a set of this node alone.
// Its scripts are those of the whole set, so that it finds the marker that they expect.
func (n *node) inspect(ctx context.Context, ttl time.Duration) sighting {
	l := sighting{node: n}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	servers, err := redisinspect.Ask(limited, n.conn)
	if err == nil && len(servers) != 1 {
		err = fmt.Errorf("%d masters behind one connection", len(servers))
	}
	if l.err = err; err != nil {
		return l
	}
	l.server = servers[0]
	l.clock, l.clockErr = inspect.ReadClock(func() (time.Time, time.Time, error) { return n.time(limited) })
	cfg := n.cfg
	cfg.Retention = 2 * inspect.LeaseTTL(ttl, n.cfg.traits())
	probe := newEngine([]Node{redisconn.NodeOf(n.conn)}, cfg, len(n.set.nodes))
	probe.acquirer.names.Write = nameindex.Nothing // nobody need see the probe names
	probe.set.wrong, probe.set.nodes[0].label = nil, n.label
	t := inspect.Trial{Engine: probe, Name: inspect.NewName(), TTL: ttl, Denied: redisconn.Denied, Grant: n.grant()}
	l.found, l.err = t.Run(ctx)
	_ = probe.Close() // it holds nothing
	rules := redisinspect.Rules{Quarantine: !n.cfg.NoQuarantine, Independent: true}
	l.found = append(l.found, rules.Judge(l.server)...)
	return l
}

// time asks for the node's time.
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

// there is about which nodes are there at all: a majority must be, or all locks are lost.
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
		return inspect.Found("nodes", driver.Broken, saw, fmt.Sprintf("no lock can be had, and those that are held are lost: %d nodes must answer", s.need), "bring the others back")
	}
	return inspect.Found("nodes", driver.Warning, saw, fmt.Sprintf("if fewer than %d nodes answer, all locks are lost", s.need), "bring the others back")
}

// independence is about whether two nodes are one server: it would have two votes.
func independence(looks []sighting) driver.Finding {
	const check = "independence"
	servers := map[string]string{}
	for _, l := range looks {
		id := l.server.Info["run_id"]
		if id == "" {
			return inspect.Unchecked(check, fmt.Errorf("%s does not say which server it is", l.node.label), "let the user run it for an inspection: ACL SETUSER name +info")
		}
		if other, twice := servers[id]; twice {
			return inspect.Found(check, driver.Broken, fmt.Sprintf("%s and %s are the same server", other, l.node.label),
				"it would vote twice, and its data is lost twice: redlock refuses such nodes", "give redlock independent masters")
		}
		servers[id] = l.node.label
	}
	return inspect.Passed(check, "servers of their own")
}

// clocks is about the distance between the nodes' clocks.
func clocks(looks []sighting) driver.Finding {
	const check = "clocks"
	for _, l := range looks {
		if l.clockErr != nil {
			return inspect.Unchecked(check, fmt.Errorf("%s: %w", l.node.label, l.clockErr), "let the user run it for an inspection: ACL SETUSER name +time")
		}
	}
	byClock := func(a, b sighting) int { return cmp.Compare(a.clock.Ahead, b.clock.Ahead) }
	first, last := slices.MinFunc(looks, byClock), slices.MaxFunc(looks, byClock)
	apart, doubt := last.clock.Ahead-first.clock.Ahead, first.clock.Doubt+last.clock.Doubt
	saw := fmt.Sprintf("the nodes' clocks are %v apart, give or take %v", inspect.Short(apart), inspect.Short(doubt))
	if apart-doubt <= ahead { // by more, a client's proposal for a token is not accepted everywhere
		return inspect.Passed(check, saw)
	}
	return inspect.Found(check, driver.Warning, fmt.Sprintf("%s (%s is behind %s)", saw, first.node.label, last.node.label),
		"tokens may fall when nodes lose their data; and every acquisition takes a second round trip",
		"keep the clocks with NTP, and let them be slewed rather than stepped")
}

// together brings together what was found on the nodes. A node that grants nothing just now is
// no more than a warning while a majority does.
func (s *nodeSet) together(looks []sighting) []driver.Finding {
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

// grant is the command that gives a user the rights that the engine needs.
func (c *client) grant() string {
	rule := "ACL SETUSER name &" + c.cfg.channel() + " ~" + c.cfg.Prefix + "lock:*"
	for _, prefix := range companions {
		rule += " ~" + prefix + "*"
	}
	return rule + " ~" + c.cfg.Prefix + "fencelock:node ~" + c.cfg.Prefix + "fencelock:names " + scriptRights
}
