package sim

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/quorum"
)

// World is one simulated deployment. Each Run reuses its memory. It is not safe for concurrent use;
// use several worlds.
type World struct {
	Tally Tally     // result of all schedules so far
	Lacks Line      // lines that the nodes and clients leave out
	Trace io.Writer // receives a line for every event; nil means none

	class   *Class
	seed    uint64
	rng     random
	now     int64
	queue   queue
	net     network
	servers []server
	clients []client
	judge   judge
	size    int  // number of nodes in each client's list
	stepped bool // tokens start an hour ahead of all clocks
	mixed   bool // some acquisitions are shared
	terms   quorum.Terms
	margin  time.Duration
	owners  Owner
	callers Caller
	passed  []passed
	failed  error
}

// Run runs the schedule of a class and a seed. It returns an error for the first violation that the
// class does not allow.
func (w *World) Run(class *Class, seed uint64) error {
	w.setUp(class, seed)
	for len(w.queue.events) > 0 && w.queue.events[0].at < int64(horizon) {
		e := w.queue.pop()
		w.now = e.at
		w.Tally.Events++
		if w.Trace != nil {
			w.trace(&e)
		}
		w.handle(&e)
	}
	w.Tally.Schedules++
	w.close()
	return w.failed
}

// handle passes an event to the client, node or judge that it concerns.
func (w *World) handle(e *event) {
	switch {
	case e.kind <= evLeave:
		w.servers[w.clients[e.client].leads[e.node]].serve(e)
	case e.kind <= evDone:
		w.clients[e.client].step(e)
	case e.kind == evWrite:
		w.judge.write(e)
	case e.kind == evFault:
		w.fault()
	case e.kind == evSync:
		w.servers[e.node].sync()
		w.after(100*ms+w.rng.below(term), event{kind: evSync, node: e.node})
	}
}

// after schedules an event.
func (w *World) after(d int64, e event) {
	e.at = w.now + d
	w.queue.push(e)
}

// violate records a violation.
func (w *World) violate(v Violation, format string, args ...any) {
	if w.Tally.Broken[v] == 0 {
		w.Tally.Seeds[v] = w.seed
	}
	w.Tally.Broken[v]++
	if w.Trace != nil {
		w.say("VIOLATION %v: "+format, append([]any{v}, args...)...)
	}
	if w.failed == nil && !slices.Contains(w.class.Breaks, v) {
		w.failed = fmt.Errorf("%v in class %q, seed %d: at %v "+format,
			append([]any{v, w.class.Name, w.seed, time.Duration(w.now)}, args...)...)
	}
}

// setUp prepares a schedule. All random values of the schedule depend on the class and the seed
// only.
func (w *World) setUp(class *Class, seed uint64) {
	w.class, w.seed, w.now, w.failed = class, seed, 0, nil
	w.rng = random(seed)
	for _, b := range []byte(class.Name) {
		w.rng = w.rng*31 + random(b)
	}
	w.queue.reset()
	w.owners, w.callers, w.passed = 0, 0, w.passed[:0]
	w.net = network{world: w}
	w.judge = judge{world: w, past: append(w.judge.past[:0], past{}), since: append(w.judge.since[:0], 0)}
	w.size = int(3 + 2*w.rng.below(2))
	w.mixed = w.rng.chance(300)
	if class.Single {
		w.size = 1
	}
	w.terms = quorum.Terms{Nodes: w.size, Need: w.size/2 + 1, TTL: ttl, Drift: margin, TwoRound: w.rng.chance(250)}
	if w.Lacks&DriftLine != 0 {
		w.terms.Drift = 0
	}
	if w.Lacks&MajorityLine != 0 {
		w.terms.Need--
	}
	w.margin = w.terms.Drift
	w.setUpServers()
	w.setUpClients(int(2 + w.rng.below(4)))
	if len(class.Faults) > 0 {
		w.after(w.rng.below(class.Every), event{kind: evFault})
	}
}

// setUpServers starts the nodes. The nodes of the regular list vote immediately; the others are
// new.
func (w *World) setUpServers() {
	if w.servers == nil {
		w.servers = make([]server, maxNodes)
	}
	w.stepped = w.rng.chance(w.class.Stepped)
	for i := range w.servers {
		s := &w.servers[i]
		seats, copies, line, bars := s.Seats[:0], s.replica.seats[:0], s.line[:0], s.Bars[:0]
		*s = server{world: w, index: uint8(i), Node: Node{Without: w.class.Without | w.Lacks, Ahead: int64(ahead) / 1000, Seats: seats, Bars: bars}}
		s.replica.seats, s.line, s.life.run = copies, line, uint32(i+1)<<8
		s.drift, s.offset = w.rng.within(w.class.Rate), w.rng.within(w.class.Skew)
		s.booted = s.clock(-int64(time.Hour)) // long ago
		if i < w.size {
			s.Declare(0, int64(maxTTL)/1000)
		}
		if w.stepped {
			s.Fence = epoch + hour
		}
		s.sync()
		w.after(w.rng.below(term), event{kind: evSync, node: uint8(i)})
	}
}

// setUpClients starts the clients at random times.
func (w *World) setUpClients(n int) {
	if w.clients == nil {
		w.clients = make([]client, 8)
	}
	w.clients = w.clients[:n]
	for i := range w.clients {
		w.clients[i].reset(w, uint8(i))
		w.after(w.rng.below(50*ms), event{kind: evTry, client: uint8(i), round: w.clients[i].turn})
	}
}

// close ends a schedule.
func (w *World) close() {
	if n := w.judge.lapsed; w.class.Calm && n > 0 {
		w.violate(Leftover, "%d leases ran out although nothing went wrong", n)
	}
}
