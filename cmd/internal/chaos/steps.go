//go:build unix

package chaos

import (
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/internal/faults"
)

// steps are what a fault does, and when.
func (r *round) steps(f Fault) []step {
	random := rand.New(rand.NewPCG(f.seed, 1))
	var undo func() // nil before the fault has begun, and if it ends by itself
	all := []step{{at: f.from, do: func() {
		r.began(f)
		undo = r.begin(f, random)
	}}}
	if f.What == storm { // half of the connections are cut again and again
		for at := f.from; at < f.end(); at += 20*time.Millisecond + below(random, 60*time.Millisecond) {
			all = append(all, step{at: at, do: func() { r.onServing(f, random) }})
		}
	}
	return append(all, step{at: f.end(), ends: true, do: func() {
		if undo != nil {
			undo()
		}
	}})
}

// begin begins a fault, and returns what ends it. nil means that it ends by itself.
func (r *round) begin(f Fault, random *rand.Rand) (undo func()) {
	switch f.What {
	case kill:
		r.kill(f.worker)
		r.launch(f.worker)
	case freeze:
		r.crew[f.worker].signal(syscall.SIGSTOP)
		return func() { r.crew[f.worker].signal(syscall.SIGCONT) }
	case skew:
		r.crew[f.worker].Say(f.by.String())
	case crash:
		r.servers.crash(f.server, random)
	case clock:
		r.setClock(f.by)
	case back:
		r.setClock(r.ahead - f.by)
	case pause:
		r.pause(f.server, 1)
		return func() { r.pause(f.server, -1) }
	case promote:
		r.servers.promote()
	case split:
		return r.split(random)
	case move:
		return r.move(random)
	case still, full, busy, flush, storm:
		return r.onServing(f, random)
	default:
		return r.onConnections(f, random)
	}
	return nil
}

// onServing begins a fault of a server that does not stand still.
func (r *round) onServing(f Fault, random *rand.Rand) (undo func()) {
	if r.paused[f.server] > 0 {
		return nil
	}
	switch f.What {
	case still:
		return r.servers.still()
	case full:
		return r.servers.fill()
	case flush:
		r.servers.flush(f.server)
	case storm:
		r.servers.cut(f.server, random)
	case busy: // while it is, it counts as one that stands still
		r.finishMove()
		r.paused[f.server]++
		await := r.servers.busy(f.server, f.length)
		return func() {
			await()
			r.paused[f.server]--
		}
	}
	return nil
}

// setClock sets the clock of the last server.
func (r *round) setClock(ahead time.Duration) {
	r.ahead = ahead
	r.servers.clock.Set(ahead)
}

// pause makes a server stand still while there is a fault that wants it.
func (r *round) pause(server, more int) {
	r.finishMove()
	before := r.paused[server]
	r.paused[server] += more
	switch {
	case before == 0:
		r.servers.pause(server)
	case r.paused[server] == 0:
		r.servers.resume(server)
	}
}

// finishMove ends the move of a slot, which could not go on while a server stands still.
func (r *round) finishMove() {
	if r.moving != nil {
		r.moving()
		r.moving = nil
	}
}

// move moves the slot of a name, in two steps. One slot moves at a time, and none while
// a server stands still.
func (r *round) move(random *rand.Rand) (undo func()) {
	r.finishMove()
	for _, n := range r.paused {
		if n > 0 {
			return nil
		}
	}
	all := names(r.Own.Names, r.Twins)
	r.moving = r.servers.move(all[random.IntN(len(all))], random)
	return r.finishMove
}

// tending is what an operator does all the time.
func (r *round) tending(length time.Duration) (all []step) {
	if r.servers.tend == nil {
		return nil
	}
	for at := r.TTL / 2; at < length; at += r.TTL / 2 {
		all = append(all, step{at: at, do: r.servers.tend})
	}
	return all
}

// onConnections begins a fault between a worker and its servers, or one of them.
func (r *round) onConnections(f Fault, random *rand.Rand) (undo func()) {
	direction := faults.Direction(1 + random.IntN(3))
	rate, share, half := 500+random.IntN(5000), random.Float64()/2, random.IntN(2) == 0
	switch f.What {
	case cut:
		return r.eachProxy(f, (*faults.Proxy).Reset, nil)
	case drop:
		return r.eachProxy(f, func(p *faults.Proxy) { p.Drop(direction) }, func(p *faults.Proxy) { p.Drop(0) })
	case delay:
		return r.eachProxy(f, func(p *faults.Proxy) { p.Delay(faults.ToClient, f.by) }, func(p *faults.Proxy) { p.Delay(faults.Both, 0) })
	case slow:
		return r.eachProxy(f, func(p *faults.Proxy) { p.Slow(direction, rate) }, func(p *faults.Proxy) { p.Slow(faults.Both, 0) })
	case lossy:
		return r.eachProxy(f, func(p *faults.Proxy) { p.Lossy(direction, share) }, func(p *faults.Proxy) { p.Lossy(faults.Both, 0) })
	case late:
		return r.late(f, f.by, half, func(p *faults.Proxy) func() { return p.Late("", f.by) })
	case twice:
		by := f.by
		if half {
			by = 0
		}
		return r.late(f, by, false, func(p *faults.Proxy) func() { return p.Twice("EVALSHA", by) })
	}
	links := r.links(f)
	if len(links) == 0 {
		return nil
	}
	link := links[random.IntN(len(links))]
	link.Stall(direction)
	return link.Resume
}

// eachProxy begins a fault on each proxy that it concerns.
func (r *round) eachProxy(f Fault, begin, end func(*faults.Proxy)) (undo func()) {
	for _, p := range r.proxiesOf(f.worker, f.server) {
		begin(p)
	}
	if end == nil {
		return nil
	}
	return func() { _ = r.eachProxy(f, end, nil) }
}

// links are the connections that a fault concerns.
func (r *round) links(f Fault) (all []*faults.Link) {
	for _, p := range r.proxiesOf(f.worker, f.server) {
		all = append(all, p.Links()...)
	}
	return all
}

// late makes what a worker sends arrive late or a second time. A worker that gives up loses its
// connections before.
func (r *round) late(f Fault, by time.Duration, givesUp bool, add func(*faults.Proxy) (remove func())) (undo func()) {
	var removes []func()
	for _, p := range r.proxiesOf(f.worker, f.server) {
		removes = append(removes, add(p))
	}
	return func() {
		r.lateUntil = max(r.lateUntil, history.Now()+by)
		for _, remove := range removes {
			remove()
		}
		if givesUp {
			for _, l := range r.links(f) {
				l.ResetClient()
			}
		}
	}
}
