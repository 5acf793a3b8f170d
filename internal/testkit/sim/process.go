package sim

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// process is the environment of a client: the clocks of its machine, its connections, and pauses.
type process struct {
	world     *World
	id        uint8
	drowsy    bool            // after a pause, messages arrive before timers
	turn      uint32          // number of the current attempt; timers of earlier ones are ignored
	owner     Owner           // of the current attempt; timers of others are ignored
	nodes     [maxNodes]uint8 // its list of addresses
	index     [maxNodes]uint8 // the index of an address in nodes
	leads     [maxNodes]uint8 // the server to which an address leads
	samples   [maxNodes]sample
	rate      int64 // the error of its clocks' rate, in parts per million
	wall      int64 // how far its wall clock is ahead
	suspended int64 // the suspended time, which its monotonic clock does not count
	frozen    int64 // the end of its pause
}

// sample is one reading of a node's clock.
type sample struct {
	clock int64         // microseconds
	at    time.Duration // by the process's monotonic clock; the node read its clock at this time or later
}

// instant reads the clocks.
func (p *process) instant() hold.Instant {
	w := p.world
	boot := w.now + w.now/1000*p.rate/1000
	mono := boot - p.suspended
	if w.Lacks&SuspendLine != 0 {
		return hold.Instant{Mono: time.Duration(mono), Boot: time.Duration(mono), Wall: time.Duration(mono)}
	}
	return hold.Instant{Mono: time.Duration(mono), Boot: time.Duration(boot), Wall: time.Duration(boot + p.wall)}
}

// notAfter returns the deadline of a request that is useful for d from now, by the node's clock. It
// is an estimate that is never too early.
func (p *process) notAfter(node uint8, d time.Duration) int64 {
	s := p.samples[node]
	since := p.instant().Mono - s.at
	return s.clock + int64(since+since/1000+d)/1000
}

// lag may pause the process. Messages that it sends after this call leave after the pause, with
// times that were read before it.
func (p *process) lag() {
	if p.world.rng.chance(p.world.class.Pause) {
		p.freeze()
	}
}

// freeze pauses the process for up to three TTLs.
func (p *process) freeze() {
	w := p.world
	d := w.rng.below(20 * ms)
	if w.rng.chance(500) {
		d = w.rng.below(3 * term)
	}
	p.frozen, p.drowsy = max(p.frozen, w.now+d), w.rng.chance(500)
}

// tell sends a request to a node, after the pause of the process if there is one.
func (p *process) tell(node uint8, e event) {
	e.client, e.node = p.id, node
	p.world.net.send(max(p.world.now, p.frozen), there, e)
}

// alarm sets a timer that fires d later by the process's clock, or up to a millisecond after that.
func (p *process) alarm(d int64, k kind, round uint32) {
	d -= d / 1000 * p.rate / 1000
	p.world.after(max(d, 0)+1+p.world.rng.below(ms), event{kind: k, client: p.id, owner: p.owner, round: round})
}
