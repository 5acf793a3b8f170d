package sim

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// state is what a client is at.
type state uint8

const (
	idle state = iota
	taking
	holding
)

// client takes the lock, works, releases, and begins again. What it does while it takes
// the lock is in taking.go, and what it does while it holds it in holding.go.
type client struct {
	process
	state   state
	raising bool          // the second round has its timer
	timer   uint32        // the only tick that counts
	attempt uint32        // the only renewal that counts
	set     uint32        // the hash of its list, which is 0 or 1
	ttl     time.Duration // of its leases, and its MaxTTL
	lent    time.Duration // the lease asked for

	request request
	asked   [maxNodes]int64 // until when a node may still run what it was asked, by its clock; 0 if it has answered
	mended  [maxNodes]int64 // and what it was to repair

	last     int64 // the last token proposed or got
	greatest int64 // the greatest token returned before the take was called
	before   int64 // how many acquisitions there were before it
	called   int64 // when
	ordinal  int64 // which acquisition it is
	token    int64
	floor    int64
	won      int64 // when
	renewed  int64 // when it asked for a renewal

	take    take
	hold    hold.Hold
	lease   hold.Instant // from when the lease counts
	renewal renewal
}

// request is what a client wants, for one attempt, or for as long as it waits.
type request struct {
	open    bool
	shared  bool
	forced  bool  // it breaks the name
	waits   bool  // it goes on until it has the lock
	joins   bool  // it is in the nodes' queues
	minHold int64 // the minimum hold, in microseconds
	caller  Caller
	since   int64 // by its monotonic clock
}

// reset makes a client new, as after a start of its process. Events of the one before
// do not count for it.
func (c *client) reset(w *World, id uint8) {
	*c = client{process: process{world: w, id: id, turn: c.turn + 1}, ttl: ttl}
	c.rate = w.rng.within(w.class.Rate)
	c.wall = w.rng.within(w.class.Astray) * 1000
	for i := range c.nodes {
		c.nodes[i], c.index[i], c.leads[i] = uint8(i), uint8(i), uint8(i)
	}
	if w.class.Spread > 0 && id%2 == 1 {
		other := (w.size-1)/2 + w.class.Spread - 1 // a minority, and one more than that
		for i := range other {
			a, b := w.size-1-i, w.size+i
			c.nodes[a], c.index[b] = uint8(b), uint8(a)
		}
		c.set = 1
	}
	if w.class.Double && id%2 == 1 {
		c.ttl = 2 * ttl
	}
	for i := range c.samples { // it has met them all
		c.samples[i] = sample{w.servers[i].clock(w.now), c.instant().Mono}
	}
}

// maxTTL is the client's idea of the longest lease.
func (c *client) maxTTL() int64 { return int64(c.ttl) / 1000 }

// over reports whether the hold has ended: a node that grants from now on is freed.
func (c *client) over() bool { return c.state == idle && c.take.State() == quorum.Won }

// believes reports whether the client holds the lock as far as it knows.
func (c *client) believes() bool {
	return c.state == holding && !c.hold.Ended() && c.hold.Left(c.instant()) > 0
}

// step lets a client take an event, unless it is paused, or pauses now.
func (c *client) step(e *event) {
	w := c.world
	if c.frozen <= w.now && e.kind != evTry {
		c.lag()
	}
	if c.frozen > w.now { // who goes on finds timers and messages in any order
		e.at = c.frozen + w.rng.below(ms)
		if c.drowsy && e.kind >= evTry {
			e.at += ms
		}
		w.queue.push(*e)
		return
	}
	switch e.kind {
	case evStanding, evTick, evRenewLimit, evCheck, evDone:
		c.whileHolding(e)
	default:
		c.whileTaking(e)
	}
}

// again begins another attempt after a pause with jitter, and calls one off that was to
// begin before.
func (c *client) again() {
	w := c.world
	c.state = idle
	d := w.rng.below(200 * ms)
	if w.rng.chance(300) {
		d = w.rng.below(20 * ms)
	}
	c.turn++
	w.after(d, event{kind: evTry, client: c.id, round: c.turn})
}
