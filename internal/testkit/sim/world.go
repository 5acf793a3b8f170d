package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// World is one simulated deployment. Its memory is used again by every Run. It
// is not safe for concurrent use; several worlds are.
type World struct {
	Tally   Tally       // of all schedules so far
	Without quorum.Line // a line that the clients leave out
	Lacks   Line        // lines that the nodes and the clients leave out
	Trace   io.Writer   // gets a line for every event; nil means none
	Journal *Journal    // gets the history of every schedule; nil means none

	class   *Class
	seed    uint64
	rng     random
	now     int64
	queue   queue
	servers []server
	clients []client
	links   [8][maxNodes]link
	guard   guard
	size    int  // how many nodes a client has
	stepped bool // tokens begin an hour ahead of all clocks
	mixed   bool // some acquisitions are shared
	terms   quorum.Terms
	margin  time.Duration
	owners  Owner
	callers Caller
	past    []past  // by owner
	since   []int64 // by caller: since when it has wanted the lock
	order   order
	detour  int64 // how much longer the message takes that is being sent
	lapsed  int   // leases that ran out
	failed  error
}

// order is what the tokens so far must be like.
type order struct {
	acquired         int64    // how many acquisitions
	whole, exclusive int64    // which was the last one, and the last exclusive one, that nobody had broken
	taken            int64    // when the last one was
	closed, closedAt int64    // until when a minimum hold lasts, and when it was acquired
	greatest         int64    // the greatest token returned
	recent           [8]int64 // the last tokens returned
}

// Run plays the schedule of a class and a seed, and returns an error for the
// first violation that the class does not allow.
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

func (w *World) handle(e *event) {
	switch {
	case e.kind <= evLeave:
		w.serve(e)
	case e.kind <= evDone:
		w.step(e)
	case e.kind == evWrite:
		w.write(e)
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

// violate notes a violation.
func (w *World) violate(v Violation, format string, args ...any) {
	if w.Tally.Broken[v] == 0 {
		w.Tally.Seeds[v] = w.seed
	}
	w.Tally.Broken[v]++
	if w.Trace != nil {
		w.say("VIOLATION %v: "+format, append([]any{v}, args...)...)
	}
	if w.failed == nil && !w.class.breaks(v) {
		w.failed = fmt.Errorf("%v in class %q, seed %d: at %v "+format,
			append([]any{v, w.class.Name, w.seed, time.Duration(w.now)}, args...)...)
	}
}

// setUp prepares a schedule; everything random about it follows from the seed.
func (w *World) setUp(class *Class, seed uint64) {
	w.class, w.seed, w.now, w.failed = class, seed, 0, nil
	w.rng = random(seed)
	for _, b := range []byte(class.Name) {
		w.rng = w.rng*31 + random(b)
	}
	w.queue.reset()
	w.links, w.guard, w.order, w.owners, w.callers = [8][maxNodes]link{}, guard{}, order{}, 0, 0
	w.past, w.since, w.lapsed = append(w.past[:0], past{}), append(w.since[:0], 0), 0
	w.size = int(3 + 2*w.rng.below(2))
	w.mixed = w.rng.chance(300)
	if class.Single {
		w.size = 1
	}
	w.margin = margin
	if w.Without == quorum.DriftLine {
		w.margin = 0
	}
	w.terms = quorum.Terms{Nodes: w.size, TTL: ttl, Drift: margin, TwoRound: w.rng.chance(250), Without: w.Without}
	if w.Journal != nil {
		w.Journal.begin()
	}
	w.setUpServers()
	w.setUpClients(int(2 + w.rng.below(4)))
	if len(class.Faults) > 0 {
		w.after(w.rng.below(class.Every), event{kind: evFault})
	}
}

func (w *World) setUpServers() {
	if w.servers == nil {
		w.servers = make([]server, maxNodes)
	}
	w.stepped = w.rng.chance(w.class.Stepped)
	for i := range w.servers {
		s := &w.servers[i]
		seats, copies, line, bars := s.Seats[:0], s.replica.seats[:0], s.line[:0], s.Bars[:0]
		*s = server{index: uint8(i), Node: Node{Without: w.class.Without | w.Lacks, Ahead: int64(ahead) / 1000, Seats: seats, Bars: bars}}
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
	if w.class.Calm {
		if w.lapsed > 0 {
			w.violate(Leftover, "%d leases ran out although nothing went wrong", w.lapsed)
		}
	}
	if w.Journal != nil {
		for i := range w.clients {
			if c := &w.clients[i]; c.state == holding {
				w.ends(c)
			}
		}
	}
}

// instant reads a client's clocks.
func (w *World) instant(c *client) hold.Instant {
	boot := w.now + w.now/1000*c.rate/1000
	mono := boot - c.suspended
	if w.Lacks&SuspendLine != 0 {
		return hold.Instant{Mono: time.Duration(mono), Boot: time.Duration(mono), Wall: time.Duration(mono)}
	}
	return hold.Instant{Mono: time.Duration(mono), Boot: time.Duration(boot), Wall: time.Duration(boot + c.wall)}
}
