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

// client is one process: it takes the lock, works, releases, and begins again.
type client struct {
	id        uint8
	state     state
	drowsy    bool   // when it goes on, messages come first and timers later
	raising   bool   // the second round has its timer
	turn      uint32 // the only try that counts
	timer     uint32 // the only tick that counts
	attempt   uint32 // the only renewal that counts
	owner     Owner
	nodes     [maxNodes]uint8 // its list, of addresses
	index     [maxNodes]uint8 // the place of an address in it
	leads     [maxNodes]uint8 // the server that an address leads to
	set       uint32          // the list's hash, which is 0 or 1
	ttl       time.Duration   // of its leases, and its MaxTTL
	lent      time.Duration   // the lease asked for
	rate      int64           // of its clocks, in parts per million beside 1
	wall      int64           // what its wall clock is ahead
	suspended int64           // what its monotonic clock missed
	frozen    int64           // until when it does nothing

	request request
	samples [maxNodes]sample
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

	take    quorum.Take
	hold    hold.Hold
	lease   hold.Instant // from when the lease counts
	renewal quorum.Renewal
}

// request is what a client wants, for one attempt, or for as long as it waits.
type request struct {
	open    bool
	shared  bool
	forced  bool  // it breaks the name
	waits   bool  // it goes on until it has the lock
	joins   bool  // it is in the nodes' queues
	atLeast int64 // the minimum hold, in microseconds
	caller  Caller
	since   int64 // by its monotonic clock
}

// sample is what a node's clock showed.
type sample struct {
	clock int64         // microseconds
	at    time.Duration // by the client's monotonic clock, no later
}

func (c *client) reset(w *World, id uint8) {
	turn, take, renewal := c.turn+1, c.take, c.renewal
	*c = client{id: id, turn: turn, take: take, renewal: renewal, ttl: ttl}
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
		c.samples[i] = sample{w.servers[i].clock(w.now), w.instant(c).Mono}
	}
}

// maxTTL is the client's idea of the longest lease.
func (c *client) maxTTL() int64 { return int64(c.ttl) / 1000 }

// over reports whether the hold has ended: a node that grants from now on is freed.
func (c *client) over() bool { return c.state == idle && c.take.State() == quorum.Won }

// by returns when a node need not run a request any more that is of use for d, by
// that node's clock, as far as the client knows: no earlier than it means.
func (w *World) by(c *client, node uint8, d time.Duration) int64 {
	s := c.samples[node]
	since := w.instant(c).Mono - s.at
	return s.clock + int64(since+since/1000+d)/1000
}

// step lets a client take an event, unless it is paused, or pauses now.
func (w *World) step(e *event) {
	c := &w.clients[e.client]
	if c.frozen <= w.now && e.kind != evTry {
		w.lag(c)
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
	case evVote:
		w.vote(c, e)
	case evRaised:
		if e.owner == c.owner {
			w.obey(c, c.take.Raised(int(c.index[e.node]), e.answer == 1, uint64(e.server), w.instant(c)))
		}
	case evStanding:
		w.standing(c, e)
	case evTold:
		w.toldOf(c, e)
	default:
		w.ring(c, e)
	}
}

// ring handles a client's timers.
func (w *World) ring(c *client, e *event) {
	if e.kind == evTry {
		if e.round == c.turn && c.state == idle {
			w.try(c, nobody)
		}
		return
	}
	if e.owner != c.owner {
		return
	}
	switch {
	case e.kind == evAskLimit:
		for i := range w.size {
			w.obey(c, c.take.Asked(i, quorum.Vote{}, w.instant(c)))
		}
	case e.kind == evRaiseLimit:
		for i := range w.size {
			w.obey(c, c.take.Raised(i, false, 0, w.instant(c)))
		}
	case e.kind == evExpire:
		w.obey(c, c.take.Expire())
	case c.state != holding:
	case e.kind == evTick && e.round == c.timer:
		w.act(c, c.hold.Step(hold.Event{Kind: hold.Tick}, w.instant(c)))
	case e.kind == evRenewLimit && e.round == c.attempt:
		for i := range w.size {
			w.stands(c, c.nodes[i], quorum.Silent, 0)
		}
	case e.kind == evCheck:
		w.work(c)
	case e.kind == evDone:
		w.release(c)
	}
}

// lag pauses a client for a while, perhaps: what it sends from now on leaves
// when it goes on, although it has read the time before.
func (w *World) lag(c *client) {
	if w.rng.chance(w.class.Pause) {
		w.freeze(c)
	}
}

// freeze pauses a client, for up to three TTLs.
func (w *World) freeze(c *client) {
	d := w.rng.below(20 * ms)
	if w.rng.chance(500) {
		d = w.rng.below(3 * term)
	}
	c.frozen, c.drowsy = max(c.frozen, w.now+d), w.rng.chance(500)
}

// tell sends a request to a node, as soon as the client is not paused.
func (w *World) tell(c *client, node uint8, e event) {
	e.client, e.node = c.id, node
	if c.request.shared && (e.kind == evAsk || e.kind == evRepair) {
		e.flags |= shared
	}
	w.send(max(w.now, c.frozen), there, e)
}

// alarm sets a timer of d by the client's clock; timers are late at times.
func (w *World) alarm(c *client, d int64, k kind, round uint32) {
	d -= d / 1000 * c.rate / 1000
	w.after(max(d, 0)+1+w.rng.below(ms), event{kind: k, client: c.id, owner: c.owner, round: round})
}

// again begins another attempt after a pause with jitter.
func (w *World) again(c *client) {
	c.state = idle
	d := w.rng.below(200 * ms)
	if w.rng.chance(300) {
		d = w.rng.below(20 * ms)
	}
	w.retry(c, d)
}

// retry begins another attempt later, and calls one off that was to begin before.
func (w *World) retry(c *client, d int64) {
	c.turn++
	w.after(d, event{kind: evTry, client: c.id, round: c.turn})
}
