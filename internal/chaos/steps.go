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
	began := false
	begin := func(do func()) step {
		return step{at: f.from, do: func() {
			began = true
			r.began(f)
			do()
		}}
	}
	end := func(do func()) step {
		return step{at: f.end(), ends: true, do: func() {
			if began {
				do()
			}
		}}
	}
	signal := func(s syscall.Signal) func() { return func() { r.crew[f.worker].signal(s) } }
	switch f.What {
	case kill:
		return []step{begin(func() { r.kill(f.worker); r.launch(f.worker) })}
	case freeze:
		return []step{begin(signal(syscall.SIGSTOP)), end(signal(syscall.SIGCONT))}
	case crash:
		return []step{begin(func() { r.servers.crash(f.server, random) })}
	case flush:
		return []step{begin(func() {
			if r.paused[f.server] == 0 {
				r.servers.flush(f.server)
			}
		})}
	case clock:
		return []step{begin(func() { r.setClock(f.by) })}
	case back:
		return []step{begin(func() { r.setClock(r.ahead - f.by) })}
	case pause:
		return []step{begin(func() { r.pause(f.server, 1) }), end(func() { r.pause(f.server, -1) })}
	case still, full:
		do, undo := r.servers.still, func() {}
		if f.What == full {
			do = r.servers.fill
		}
		return []step{begin(func() {
			if r.paused[f.server] == 0 {
				undo = do()
			}
		}), end(func() { undo() })}
	case busy:
		return r.busy(f, begin, end)
	case promote:
		return []step{begin(r.servers.promote)}
	case split:
		heal := func() {}
		return []step{begin(func() { heal = r.split(random) }), end(func() { heal() })}
	case move:
		return r.move(f, random, begin, end)
	case storm:
		return r.storm(f, random, begin)
	}
	return r.onTheWay(f, random, begin, end)
}

// setClock sets the clock of the last server.
func (r *round) setClock(ahead time.Duration) {
	r.ahead = ahead
	r.servers.clock.Set(ahead)
}

// pause makes a server stand still while there is a fault that wants it.
func (r *round) pause(server, more int) {
	if r.moving != nil {
		r.moving() // or the move could not go on
	}
	before := r.paused[server]
	r.paused[server] += more
	switch {
	case before == 0:
		r.servers.pause(server)
	case r.paused[server] == 0:
		r.servers.resume(server)
	}
}

// busy keeps a server busy that does not stand still. While it is, it counts as one that does.
func (r *round) busy(f Fault, begin, end func(func()) step) []step {
	after := func() {}
	return []step{begin(func() {
		if r.paused[f.server] > 0 {
			return
		}
		if r.moving != nil {
			r.moving() // or the move could not go on
		}
		r.paused[f.server]++
		await := r.servers.busy(f.server, f.length)
		after = func() {
			await()
			r.paused[f.server]--
		}
	}), end(func() { after() })}
}

// move moves the slot of a name, in two steps. One slot moves at a time, and none while
// a server stands still.
func (r *round) move(f Fault, random *rand.Rand, begin, end func(func()) step) []step {
	finish := func() {
		if r.moving != nil {
			r.moving()
		}
	}
	return []step{begin(func() {
		finish()
		for _, n := range r.paused {
			if n > 0 {
				return
			}
		}
		all := r.names()
		done := r.servers.move(all[random.IntN(len(all))], random)
		r.moving = func() { done(); r.moving = nil }
	}), end(finish)}
}

// tending is what an operator does all the time.
func (r *round) tending(length time.Duration) (all []step) {
	if r.servers.tend == nil {
		return nil
	}
	for at := r.TTL / 2; at < length; at += r.TTL / 2 {
		all = append(all, step{at: at, do: func() {
			for i := range r.servers.addrs {
				if r.paused[i] == 0 {
					r.servers.tend(i)
				}
			}
		}})
	}
	return all
}

// storm cuts half of the connections again and again.
func (r *round) storm(f Fault, random *rand.Rand, begin func(func()) step) []step {
	cut := func() {
		if r.paused[f.server] == 0 {
			r.servers.cut(f.server, random)
		}
	}
	all := []step{begin(cut)}
	for at := f.from; at < f.from+f.length; at += 20*time.Millisecond + below(random, 60*time.Millisecond) {
		all = append(all, step{at: at, do: cut})
	}
	return all
}

// onTheWay is a fault between a worker and its servers, or one of them.
func (r *round) onTheWay(f Fault, random *rand.Rand, begin, end func(func()) step) []step {
	ways := func() []*faults.Proxy { return r.waysOf(f.worker, f.server) }
	each := func(do func(*faults.Proxy)) func() {
		return func() {
			for _, p := range ways() {
				do(p)
			}
		}
	}
	direction := faults.Direction(1 + random.IntN(3))
	switch f.What {
	case cut:
		return []step{begin(each((*faults.Proxy).Reset))}
	case drop:
		return []step{begin(each(func(p *faults.Proxy) { p.Drop(direction) })), end(each(func(p *faults.Proxy) { p.Drop(0) }))}
	case delay:
		return []step{
			begin(each(func(p *faults.Proxy) { p.Delay(faults.ToClient, f.by) })),
			end(each(func(p *faults.Proxy) { p.Delay(faults.Both, 0) })),
		}
	case slow:
		rate := 500 + random.IntN(5000)
		return []step{begin(each(func(p *faults.Proxy) { p.Slow(direction, rate) })), end(each(func(p *faults.Proxy) { p.Slow(faults.Both, 0) }))}
	case lossy:
		share := random.Float64() / 2
		return []step{begin(each(func(p *faults.Proxy) { p.Lossy(direction, share) })), end(each(func(p *faults.Proxy) { p.Lossy(faults.Both, 0) }))}
	case late:
		return r.late(ways, f, random, begin, end)
	case twice:
		return r.twice(ways, f, random, begin, end)
	}
	var link *faults.Link // stall
	return []step{begin(func() {
		var links []*faults.Link
		for _, p := range ways() {
			links = append(links, p.Links()...)
		}
		if len(links) > 0 {
			link = links[random.IntN(len(links))]
			link.Stall(direction)
		}
	}), end(func() {
		if link != nil {
			link.Resume()
		}
	})}
}

// late makes what a worker sends arrive late, and half of the times has it give
// up before.
func (r *round) late(ways func() []*faults.Proxy, f Fault, random *rand.Rand, begin, end func(func()) step) []step {
	var removes []func()
	givesUp := random.IntN(2) == 0
	return []step{begin(func() {
		for _, p := range ways() {
			removes = append(removes, p.Late("", f.by))
		}
	}), end(func() {
		r.lateUntil = max(r.lateUntil, history.Now()+f.by)
		for _, remove := range removes {
			remove()
		}
		for _, p := range ways() {
			for _, l := range p.Links() {
				if givesUp {
					l.ResetClient()
				}
			}
		}
	})}
}

// twice makes the scripts that a worker sends arrive a second time, half of the times
// at once.
func (r *round) twice(ways func() []*faults.Proxy, f Fault, random *rand.Rand, begin, end func(func()) step) []step {
	by := f.by
	if random.IntN(2) == 0 {
		by = 0
	}
	var removes []func()
	return []step{begin(func() {
		for _, p := range ways() {
			removes = append(removes, p.Twice("EVALSHA", by))
		}
	}), end(func() {
		r.lateUntil = max(r.lateUntil, history.Now()+by)
		for _, remove := range removes {
			remove()
		}
	})}
}
