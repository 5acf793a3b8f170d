package sim

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// process is what a client runs in: the clocks of its machine, its connections, and
// a scheduler that stops it at times.
type process struct {
	world     *World
	id        uint8
	drowsy    bool            // when it goes on, messages come first and timers later
	turn      uint32          // the only try that counts
	owner     Owner           // of the attempt that it is at; timers of others do not count
	nodes     [maxNodes]uint8 // its list, of addresses
	index     [maxNodes]uint8 // the place of an address in it
	leads     [maxNodes]uint8 // the server that an address leads to
	samples   [maxNodes]sample
	rate      int64 // of its clocks, in parts per million beside 1
	wall      int64 // what its wall clock is ahead
	suspended int64 // what its monotonic clock missed
	frozen    int64 // until when it does nothing
}

// sample is what a node's clock showed.
type sample struct {
	clock int64         // microseconds
	at    time.Duration // by the process's monotonic clock, no later
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

// notAfter returns when a node need not run a request any more that is of use for d, by
// that node's clock, as far as the process knows: no earlier than it means.
func (p *process) notAfter(node uint8, d time.Duration) int64 {
	s := p.samples[node]
	since := p.instant().Mono - s.at
	return s.clock + int64(since+since/1000+d)/1000
}

// lag stops the process for a while, perhaps: what it sends from now on leaves
// when it goes on, although it has read the time before.
func (p *process) lag() {
	if p.world.rng.chance(p.world.class.Pause) {
		p.freeze()
	}
}

// freeze stops the process, for up to three TTLs.
func (p *process) freeze() {
	w := p.world
	d := w.rng.below(20 * ms)
	if w.rng.chance(500) {
		d = w.rng.below(3 * term)
	}
	p.frozen, p.drowsy = max(p.frozen, w.now+d), w.rng.chance(500)
}

// tell sends a request to a node, as soon as the process goes on.
func (p *process) tell(node uint8, e event) {
	e.client, e.node = p.id, node
	p.world.net.send(max(p.world.now, p.frozen), there, e)
}

// alarm sets a timer of d by the process's clock; timers are late at times.
func (p *process) alarm(d int64, k kind, round uint32) {
	d -= d / 1000 * p.rate / 1000
	p.world.after(max(d, 0)+1+p.world.rng.below(ms), event{kind: k, client: p.id, owner: p.owner, round: round})
}
