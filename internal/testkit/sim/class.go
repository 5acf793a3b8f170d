package sim

import (
	"slices"
	"time"
)

// The time scale of every schedule. Only the ratios of the times matter.
const (
	ttl      = 2 * time.Second
	maxTTL   = 2 * time.Second // the quarantine
	margin   = ttl/50 + 10*time.Millisecond
	ahead    = 500 * time.Millisecond // how far ahead of a node's clock a proposed token may be
	limit    = ttl / 10               // how long one node may take to answer
	horizon  = 10 * ttl               // the length of a schedule
	ms       = int64(time.Millisecond)
	micro    = int64(time.Microsecond)
	hour     = int64(time.Hour / time.Microsecond)
	term     = int64(ttl)
	maxNodes = 8
)

// Class is a family of schedules: what may happen in them, and which violations are allowed.
type Class struct {
	Name   string
	About  string
	Breaks []Violation // allowed violations; a class with any is outside the model

	Single bool  // one node and plain renewals, as on a single server
	Calm   bool  // messages arrive in order and are never lost
	Loss   int64 // per mille of messages that are lost
	Twice  int64 // per mille of requests that are delivered twice
	Slow   int64 // per mille of messages that are delayed by up to two TTLs
	Pause  int64 // per mille of a client's steps before which it pauses
	Rate   int64 // maximum error of clock rates, in parts per million
	Skew   int64 // maximum error of nodes' clocks, in microseconds
	Astray int64 // maximum error of clients' clocks, in microseconds
	Late   int64 // per mille of requests that are delayed by about a TTL
	// Ambush is per mille of renewals during which the holder pauses past its deadline, and of
	// repairs that arrive late.
	Ambush  int64
	Stepped int64 // per mille of schedules in which the tokens start an hour ahead of all clocks
	Break   int64 // per mille of requests that break the name
	Adopt   int64 // per mille of holds that are passed on instead of released, and of requests that adopt one
	Double  bool  // every other client has twice the TTL and MaxTTL
	Spread  int   // some clients have other nodes in their lists: 1 means a minority of them, 2 means one more
	Without Line  // safety lines that the deployment lacks
	Faults  []fault
	Every   int64 // mean time between faults
}

// Inside reports whether the class is within the model.
func (c *Class) Inside() bool { return len(c.Breaks) == 0 }

// has reports whether a fault happens in the class.
func (c *Class) has(f fault) bool { return slices.Contains(c.Faults, f) }

// fault is something that goes wrong.
type fault uint8

// The faults.
const (
	cutLink       fault = iota // one client and one node cannot talk, one way or both
	isolateClient              // one client and all nodes
	isolateNode                // one node and all clients
	stopNode                   // a node stops; requests wait until it continues
	killClient                 // a client dies, and another one starts
	pauseHolder                // a client's process stops for a while, preferably a holder's
	suspendHolder              // a client's machine is suspended, preferably a holder's
	jumpClient                 // a client's wall clock is stepped
	crashKeep                  // a node restarts with all its data
	crashLose                  // a node restarts without data
	crashStale                 // a node restarts with old data
	crashLocks                 // a node restarts without locks, but with tokens
	flushNode                  // FLUSHALL
	failOver                   // a replica that lacks the latest writes is promoted; sometimes it fails back at once
	stopAndKill                // a node is killed while another one is stopped for a while
	jumpNode                   // a node's clock is stepped
	repoint                    // an address leads to another node's server for a while
)

var faultNames = [...]string{
	"cut link", "isolate client", "isolate node", "stop node", "kill client", "pause holder", "suspend holder",
	"jump client", "crash, keep", "crash, lose", "crash, stale", "crash, lose locks", "FLUSHALL", "failover",
	"stop and kill", "jump node", "repoint",
}

// The faults that several classes share.
var (
	links    = []fault{cutLink, cutLink, isolateClient, isolateNode, stopNode, killClient}
	pauses   = []fault{pauseHolder, pauseHolder, suspendHolder, isolateClient, stopNode}
	clocks   = []fault{jumpClient, isolateClient, cutLink, pauseHolder}
	restarts = []fault{crashKeep, crashLose, crashLose, crashStale, crashLocks, flushNode, failOver, failOver, stopAndKill, isolateNode}
	strays   = []fault{repoint, repoint, stopNode, isolateNode, isolateClient, pauseHolder}
	all      = slices.Concat(links, pauses, clocks, restarts)
)

// skew is the greatest error of nodes' clocks at which a quarantine still keeps tokens increasing.
const skew = int64(maxTTL-ahead) / 1000 / 2 * 9 / 10

// rate is the greatest error of a clock's rate, in parts per million. Two clocks with this error in
// opposite directions still differ by less than the margin.
const rate = 9000

// Classes are all classes, those within the model first.
var Classes = []*Class{
	{Name: "calm", About: "contention only", Calm: true},
	{Name: "single", About: "one node, plain renewals", Single: true,
		Loss: 20, Slow: 10, Ambush: 200, Pause: 5, Rate: rate, Astray: hour, Faults: slices.Concat(links, pauses, clocks), Every: 400 * ms},
	{Name: "network", About: "loss, delay, reordering, partitions, dead clients",
		Loss: 30, Twice: 20, Slow: 30, Stepped: 300, Faults: links, Every: 300 * ms},
	{Name: "pauses", About: "clients pause at every step, for up to three TTLs",
		Loss: 5, Slow: 20, Pause: 10, Stepped: 300, Faults: pauses, Every: 500 * ms},
	{Name: "late", About: "requests arrive after their clients gave up",
		Loss: 10, Twice: 20, Late: 60, Ambush: 500, Skew: skew, Faults: slices.Concat(restarts, links), Every: 2000 * ms},
	{Name: "clocks", About: "rates within the drift, clients an hour apart and stepped",
		Loss: 10, Rate: rate, Skew: skew, Astray: hour, Faults: clocks, Every: 400 * ms},
	{Name: "restarts", About: "nodes crash, lose data, fail over and back, FLUSHALL",
		Loss: 5, Skew: skew, Astray: hour, Faults: restarts, Every: 1000 * ms},
	{Name: "everything", About: "all of these at once",
		Loss: 10, Twice: 10, Slow: 20, Pause: 5, Rate: rate, Skew: skew, Astray: hour, Faults: all, Every: 300 * ms},
	{Name: "breaks", About: "locks are broken while their holders have faults too", Break: 200,
		Loss: 10, Pause: 5, Skew: skew, Faults: slices.Concat(links, pauses), Every: 800 * ms},
	{Name: "adoptions", About: "locks are passed on, by messages that are late or repeated", Adopt: 500,
		Loss: 20, Twice: 20, Slow: 20, Late: 20, Pause: 5, Skew: skew, Astray: hour, Faults: slices.Concat(links, pauses, restarts), Every: 800 * ms},
	{Name: "addresses", About: "addresses lead to other nodes' servers for a while",
		Loss: 5, Slow: 10, Faults: strays, Every: 150 * ms},
	{Name: "max ttl", About: "half of the clients have leases and a MaxTTL twice as long; nodes lose locks",
		Loss: 5, Double: true, Skew: skew, Faults: []fault{crashLocks, crashLocks, crashKeep, cutLink, isolateClient, pauseHolder}, Every: 600 * ms},
	{Name: "node lists", About: "lists differ in a minority of nodes",
		Loss: 10, Spread: 1, Faults: links, Every: 500 * ms},

	{Name: "fast clocks", About: "clock rates wrong by up to 5 %", Breaks: []Violation{Overlap, Early, Ghost},
		Loss: 10, Rate: 50000, Skew: skew, Astray: hour, Faults: clocks, Every: 400 * ms},
	{Name: "clock jumps", About: "nodes' clocks are stepped", Breaks: []Violation{Overlap, Ghost, Early, Overtaken, Stuck},
		Loss: 10, Slow: 20, Skew: skew, Stepped: 500, Astray: hour, Faults: slices.Concat(links, []fault{jumpNode, jumpNode, jumpNode}), Every: 300 * ms},
	{Name: "locks lost", About: "nodes lose locks, not tokens, and there is no quarantine", Breaks: []Violation{Overlap, Early},
		Loss: 10, Late: 100, Skew: skew, Stepped: 700, Astray: hour, Without: WaitLine, Faults: []fault{crashLocks}, Every: 50 * ms},
	{Name: "forgetful", About: "nodes lose data and there is no quarantine", Breaks: []Violation{Overlap, Disorder, Leak, Early, Ghost},
		Loss: 5, Skew: skew, Astray: hour, Without: WaitLine, Faults: restarts, Every: 400 * ms},
	{Name: "forgetful, astray", About: "nodes lose data; clocks wrong by more than the quarantine", Breaks: []Violation{Disorder, Early},
		Loss: 5, Skew: 10 * int64(maxTTL/1000), Astray: hour, Faults: restarts, Every: 400 * ms},
	{Name: "lists unchecked", About: "lists differ in a minority of nodes, without the check", Breaks: []Violation{Overlap, Disorder, Early, Ghost},
		Loss: 10, Spread: 1, Without: NodesLine, Faults: links, Every: 500 * ms},
	{Name: "lists apart", About: "lists share less than a majority", Breaks: []Violation{Overlap, Disorder, Early, Ghost},
		Loss: 10, Spread: 2, Faults: links, Every: 500 * ms},
}

// ClassOf returns the class with that name, or nil.
func ClassOf(name string) *Class {
	for _, c := range Classes {
		if c.Name == name {
			return c
		}
	}
	return nil
}
