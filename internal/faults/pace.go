package faults

import (
	"math/rand/v2"
	"time"
)

// A pace is how slowly data moves in one direction.
type pace struct {
	delay time.Duration
	rate  int     // bytes per second on each connection; 0 means no limit
	loss  float64 // the share of packets that are lost once
}

// resend is how long TCP waits before it sends a lost packet again.
const resend = 200 * time.Millisecond

// due returns when n bytes that arrived at some time have reached the other side. line is when the
// connection has delivered what it accepted before, as far as its rate is limited.
func (p pace) due(arrived time.Time, n int, line *time.Time) time.Time {
	due := arrived
	if p.rate > 0 {
		if line.After(due) {
			due = *line
		}
		due = due.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
		*line = due
	}
	if rand.Float64() < p.loss {
		due = due.Add(resend)
	}
	return due.Add(p.delay)
}

// Delay delays bytes in the given directions, in order and without a limit on how many are in
// flight. Bytes in flight keep their delay.
func (p *Proxy) Delay(d Direction, by time.Duration) {
	p.setPace(d, func(to *pace) { to.delay = by })
}

// Slow limits how many bytes per second a connection transfers in the given directions. 0 ends the
// limit.
func (p *Proxy) Slow(d Direction, bytesPerSecond int) {
	p.setPace(d, func(to *pace) { to.rate = bytesPerSecond })
}

// Lossy makes a share of the packets in the given directions arrive 200 ms late, and all that
// follows on their connections after them: TCP sends a lost packet again.
func (p *Proxy) Lossy(d Direction, share float64) {
	p.setPace(d, func(to *pace) { to.loss = share })
}

// setPace changes the pace of the given directions.
func (p *Proxy) setPace(d Direction, change func(*pace)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, way := range []Direction{ToServer, ToClient} {
		if d&way != 0 {
			change(&p.paces[way.index()])
		}
	}
}
