package sim

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// state is the state of a client.
type state uint8

const (
	idle state = iota
	taking
	holding
)

// client acquires the lock, works, releases it, and begins again. taking.go has what it does to
// acquire the lock, and holding.go what it does while it holds the lock.
type client struct {
	process
	state   state
	raising bool          // the timer of the second round is set
	timer   uint32        // number of the current timer; events of earlier ones are ignored
	attempt uint32        // number of the current renewal; answers to earlier ones are ignored
	set     uint32        // the hash of its list, which is 0 or 1
	ttl     time.Duration // of its leases, and its MaxTTL
	lent    time.Duration // the lease that was requested

	request request
	asked   [maxNodes]int64 // the time, by its clock, until which a node may still run the request; 0 if it has answered
	mended  [maxNodes]int64 // the same for a repair

	last     int64 // the last token that was proposed or returned
	greatest int64 // the greatest token returned before the take was called
	before   int64 // the number of acquisitions before the take was called
	called   int64 // when the take was called
	ordinal  int64 // the number of its acquisition
	token    int64
	floor    int64
	won      int64 // when it acquired the lock
	renewed  int64 // when it sent the last renewal

	take    take
	hold    hold.Hold
	lease   hold.Instant // the start of the lease
	renewal renewal
}

// request is what a client requests, in one attempt or in several while it waits.
type request struct {
	open    bool
	shared  bool
	forced  bool // it breaks the name
	from    passed
	waits   bool  // it repeats attempts until it has the lock
	joins   bool  // it joins the nodes' queues
	minHold int64 // the minimum hold, in microseconds
	caller  Caller
	since   int64 // when it began, by the client's monotonic clock
}

// passed is a lock whose holder has stopped without a release. Any client may adopt it.
type passed struct {
	owner   Owner // 0 means none
	shared  bool
	ordinal int64
}

// reset restarts a client, like a new process. Events of the process before it are ignored.
func (c *client) reset(w *World, id uint8) {
	*c = client{process: process{world: w, id: id, turn: c.turn + 1}, ttl: ttl}
	c.rate = w.rng.within(w.class.Rate)
	c.wall = w.rng.within(w.class.Astray) * 1000
	for i := range c.nodes {
		c.nodes[i], c.index[i], c.leads[i] = uint8(i), uint8(i), uint8(i)
	}
	if w.class.Spread > 0 && id%2 == 1 {
		other := (w.size-1)/2 + w.class.Spread - 1 // how many nodes differ: a minority, or one more
		for i := range other {
			a, b := w.size-1-i, w.size+i
			c.nodes[a], c.index[b] = uint8(b), uint8(a)
		}
		c.set = 1
	}
	if w.class.Double && id%2 == 1 {
		c.ttl = 2 * ttl
	}
	for i := range c.samples { // every node has answered once
		c.samples[i] = sample{w.servers[i].clock(w.now), c.instant().Mono}
	}
}

// maxTTL returns the client's MaxTTL in microseconds.
func (c *client) maxTTL() int64 { return int64(c.ttl) / 1000 }

// over reports whether the hold has ended. The client then releases the lock on a node that grants
// it late.
func (c *client) over() bool { return c.state == idle && c.take.State() == quorum.Won }

// believes reports whether the client considers itself a holder.
func (c *client) believes() bool {
	return c.state == holding && !c.hold.Ended() && c.hold.Left(c.instant()) > 0
}

// step passes an event to a client, or delays it if the client is paused.
func (c *client) step(e *event) {
	w := c.world
	if c.frozen <= w.now && e.kind != evTry {
		c.lag()
	}
	if c.frozen > w.now { // after a pause, timers and messages arrive in any order
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

// again schedules another attempt after a pause with jitter. It replaces an attempt that was
// scheduled before.
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
