package redlock

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisinspect"
)

// Inspect looks for what weakens the promises; see [Engine.Inspect].
func (s *nodeSet) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	in := &inspection{client: s.client, set: s, ttl: ttl, seen: make([]*nodeFacts, len(s.nodes))}
	var all sync.WaitGroup
	for i, n := range s.nodes {
		all.Go(func() { in.seen[i] = collect(ctx, n) })
	}
	all.Wait()
	var why causes
	for _, f := range in.seen {
		if f.err != nil {
			why.add(f.node, f.err)
		}
	}
	if len(why.errs) == len(s.nodes) {
		return nil, why.joined()
	}
	return []driver.Finding{
		in.checkNodes(&why), in.checkIndependence(), in.checkQuarantine(), in.worst((*nodeFacts).checkEviction),
		in.worst(in.checkPersistence), in.checkClocks(), in.checkLatency(),
	}, nil
}

// inspection is one Inspect and what it has learned.
type inspection struct {
	*client
	set  *nodeSet
	ttl  time.Duration
	seen []*nodeFacts
}

// Each check makes one finding: what was observed, what it means for locks, and what
// mends it. Those that need INFO are unknown where the user may not ask for it.

// checkNodes is about which nodes are there at all.
func (in *inspection) checkNodes(why *causes) driver.Finding {
	all, down := len(in.seen), len(why.errs)
	f := driver.Finding{Check: "nodes", Observed: fmt.Sprintf("%d of %d answer", all-down, all)}
	if down == 0 {
		return f
	}
	for _, err := range why.errs {
		f.Observed += "; " + err.Error()
	}
	f.Severity = driver.Warning
	f.Impact = fmt.Sprintf("locks work while %d nodes answer", in.set.need)
	f.Fix = "bring the others back"
	if all-down < in.set.need {
		f.Severity = driver.Broken
		f.Impact = fmt.Sprintf("no lock can be had: %d nodes must answer", in.set.need)
	}
	return f
}

// checkIndependence is about whether nodes can fail together.
func (in *inspection) checkIndependence() driver.Finding {
	f := driver.Finding{Check: "independence", Observed: "masters of their own"}
	servers, hosts := map[string]string{}, map[string]int{}
	for _, s := range in.live() {
		if s.info == nil {
			return s.noInfo(f.Check)
		}
		other, twice := servers[s.info["run_id"]]
		servers[s.info["run_id"]] = s.node.label
		f.Severity, f.Impact, f.Fix = driver.Broken, "redlock refuses such nodes: they forget together, and one may vote twice", "give redlock independent masters"
		switch {
		case twice:
			f.Observed = fmt.Sprintf("%s and %s are the same server", other, s.node.label)
			return f
		case s.info["role"] != "master":
			f.Observed = fmt.Sprintf("%s is a replica of %s:%s", s.node.label, s.info["master_host"], s.info["master_port"])
			return f
		case s.info["cluster_enabled"] == "1":
			f.Observed = s.node.label + " is a node of a Redis Cluster"
			return f
		}
		f.Severity, f.Impact, f.Fix = driver.Good, "", ""
		if host, _, err := net.SplitHostPort(s.node.label); err == nil {
			hosts[host]++
		}
	}
	for host, n := range hosts {
		if n > len(in.seen)-in.set.need {
			f.Severity = driver.Warning
			f.Observed = fmt.Sprintf("%d of %d nodes are on %s", n, len(in.seen), host)
			f.Impact = "when that machine fails there is no majority, and no lock"
			f.Fix = "one node for each machine"
		}
	}
	return f
}

// checkQuarantine is about nodes that do not vote, which is how the quarantine shows: a
// majority must be left, or no lock can be had until it is over.
func (in *inspection) checkQuarantine() driver.Finding {
	f := driver.Finding{Check: "quarantine", Observed: "every node votes"}
	if in.cfg.NoQuarantine {
		f.Severity, f.Observed = driver.Warning, "off"
		f.Impact = "a node that forgot its locks lets a second holder in while the first believes in its lock"
		f.Fix = "turn it on, and guard the data with fencing tokens"
		return f
	}
	var out []string
	for _, s := range in.live() {
		switch left, waits := strings.CutPrefix(s.votes, "waits "); {
		case s.votes == "votes":
		case waits:
			out = append(out, fmt.Sprintf("%s does not vote for %s ms more", s.node.label, left))
		case s.votes == "missing":
			out = append(out, s.node.label+" is new, or has forgotten everything")
		case s.votes == "nodes":
			f.Severity, f.Observed = driver.Broken, s.node.label+" works with another set of nodes"
			f.Impact = "it refuses this client: two sets of nodes may have two majorities"
			f.Fix = "give every client the same nodes, and run fencelock init when they have changed"
			return f
		default:
			f.Severity, f.Observed = driver.Broken, s.node.label+": "+s.votes
			f.Impact, f.Fix = "the lock scripts do not work there", "see what the server's words ask for"
			return f
		}
	}
	if len(out) > 0 {
		f.Severity, f.Observed = driver.Warning, strings.Join(out, "; ")
		f.Impact = fmt.Sprintf("they may have forgotten locks, and do not vote before %v have passed since the first request", in.cfg.MaxTTL)
		f.Fix = "wait; or run fencelock init if nobody can hold a lock"
	}
	return f
}

// checkEviction is about a memory that may fill up: the key that the server takes for
// another one may be a lock.
func (s *nodeFacts) checkEviction() driver.Finding {
	if s.info == nil {
		return s.noInfo("eviction")
	}
	f := driver.Finding{Check: "eviction", Observed: "no maxmemory"}
	if s.info["maxmemory"] == "0" {
		return f
	}
	if f.Observed = "maxmemory-policy " + s.info["maxmemory_policy"]; s.info["maxmemory_policy"] == "noeviction" {
		return f
	}
	f.Severity = driver.Broken
	f.Impact = "when memory is short the node deletes locks that are held"
	f.Fix = "CONFIG SET maxmemory-policy noeviction, or keep locks on servers of their own"
	return f
}

// checkPersistence is about what a restart forgets. With the quarantine it may forget
// everything: the node does not vote until all that it may have granted is over.
func (in *inspection) checkPersistence(s *nodeFacts) driver.Finding {
	if s.info == nil {
		return s.noInfo("persistence")
	}
	f := driver.Finding{Check: "persistence", Observed: "none"}
	if s.info["aof_enabled"] == "1" {
		f.Observed = "append-only file, appendfsync " + s.fsync
	} else if s.save != "" {
		f.Observed = "snapshots only (save " + s.save + ")"
	}
	if in.cfg.NoQuarantine && !(s.info["aof_enabled"] == "1" && s.fsync == "always") {
		f.Severity = driver.Warning
		f.Impact = "a node that restarts may have forgotten locks, and nothing waits that out"
		f.Fix = "appendonly yes with appendfsync always, or the quarantine"
	} else if !in.cfg.NoQuarantine {
		f.Observed += "; quarantine waits out what was forgotten"
	}
	return f
}

// clockBound is how far nodes' clocks may differ before it is worth a word: by
// more, a client's proposal for a token is not accepted everywhere.
const clockBound = ahead

// checkClocks is about the distance between the nodes' clocks.
func (in *inspection) checkClocks() driver.Finding {
	f := driver.Finding{Check: "clocks"}
	var all []*nodeFacts
	for _, s := range in.live() {
		if s.told {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return driver.Finding{Check: f.Check, Severity: driver.Unknown, Observed: "no node tells the time",
			Impact: "this could not be checked", Fix: "let the user run it for an inspection: ACL SETUSER name +time"}
	}
	slices.SortFunc(all, func(a, b *nodeFacts) int { return int(a.ahead - b.ahead) })
	first, last := all[0], all[len(all)-1]
	apart, doubt := last.ahead-first.ahead, first.doubt+last.doubt
	f.Observed = fmt.Sprintf("the nodes' clocks are %v apart, give or take %v", redisinspect.Short(apart), redisinspect.Short(doubt))
	if apart-doubt > clockBound {
		f.Severity = driver.Warning
		f.Observed += fmt.Sprintf(" (%s is behind %s)", first.node.label, last.node.label)
		f.Impact = "every acquisition takes a second round trip, and tokens may fall when nodes forget them"
		f.Fix = "keep the clocks with NTP, and let them be slewed rather than stepped"
	}
	return f
}

// checkLatency is about what a majority takes to answer: the slowest of the fastest that
// make one, against half of the limit of a request, since a script on a busy node takes
// longer than a PING.
func (in *inspection) checkLatency() driver.Finding {
	var trips []time.Duration
	for _, s := range in.live() {
		trips = append(trips, s.trip)
	}
	slices.Sort(trips)
	f := driver.Finding{Check: "latency", Observed: fmt.Sprintf("p50 of the nodes from %v to %v", redisinspect.Short(trips[0]), redisinspect.Short(trips[len(trips)-1]))}
	if len(trips) < in.set.need {
		return f
	}
	majority, limit := trips[in.set.need-1], in.cfg.limit(in.ttl)
	if 2*majority > limit {
		f.Severity = driver.Warning
		f.Impact = fmt.Sprintf("a node that takes longer than %v, for a TTL of %v, is left out, and a majority takes %v", limit, in.ttl, redisinspect.Short(majority))
		f.Fix = "a longer TTL, or nodes that are nearer"
	}
	return f
}

// live are the nodes that answer.
func (in *inspection) live() []*nodeFacts {
	return slices.DeleteFunc(slices.Clone(in.seen), func(s *nodeFacts) bool { return s.err != nil })
}

// worst makes a check of every node that answers, and returns the worst finding.
func (in *inspection) worst(check func(*nodeFacts) driver.Finding) driver.Finding {
	var worst driver.Finding
	for i, s := range in.live() {
		f := check(s)
		if i > 0 && f.Severity <= worst.Severity {
			continue
		}
		if worst = f; f.Severity != driver.Good {
			worst.Observed = s.node.label + ": " + f.Observed
		}
	}
	return worst
}

// noInfo is the finding of a check that needs INFO, of a node that refuses it.
func (s *nodeFacts) noInfo(check string) driver.Finding {
	return driver.Finding{Check: check, Severity: driver.Unknown, Observed: fmt.Sprintf("%s: %v", s.node.label, s.denied),
		Impact: "this could not be checked", Fix: "let the user run it: ACL SETUSER name +info"}
}
