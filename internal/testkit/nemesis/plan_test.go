//go:build linux

package nemesis_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A fault is something that happens to a worker or a server for a while.
type fault struct {
	what   string
	worker int // or the server, if what is about one
	server int // of those behind the worker's proxies; -1 means all
	from   time.Duration
	length time.Duration
	by     time.Duration // how late
	seed   uint64        // for what is left to chance
}

func (f fault) String() string {
	s := fmt.Sprintf("%v to %v: %s", f.from.Round(time.Millisecond), (f.from + f.length).Round(time.Millisecond), f.what)
	switch f.what {
	case promote, split, move:
	case pause, crash, clock, back, storm, still, full, busy:
		s += fmt.Sprintf(" of server %d", f.server)
	default:
		s += fmt.Sprintf(" of worker %d", f.worker)
		if f.server >= 0 {
			s += fmt.Sprintf(" at server %d", f.server)
		}
	}
	if f.by != 0 { // late, delay, twice, clock, back
		s += fmt.Sprintf(" by %v", f.by)
	}
	return s
}

// What can happen. Those of clients and of the network are safe on every engine.
const (
	kill   = "kill"   // a worker's process is killed, and another one takes its place
	freeze = "freeze" // a worker's process stands still
	cut    = "cut"    // a worker's connections are reset
	late   = "late"   // what a worker sends arrives late, even if it has given up
	delay  = "delay"  // what a worker hears arrives late
	stall  = "stall"  // one connection of a worker stands still
	drop   = "drop"   // nothing arrives in one direction, or in both
	storm  = "storm"  // a server ends half of its connections, several times a second
	pause  = "pause"  // a server stands still
	crash  = "crash"  // a server is killed and started again
	clock  = "clock"  // the wall clock of a server is stepped
	back   = "back"   // the wall clock of a server is set back a little, for good
	still  = "still"  // the process that serves one connection stands still
	full   = "full"   // the server's table of locks is full
	busy   = "busy"   // somebody's script keeps the server busy, and it refuses all else
	twice  = "twice"  // what a worker sends arrives a second time, soon or late

	promote = "promote" // the Sentinels are asked for another master
	split   = "split"   // the master is cut off, with a part of the workers
	move    = "move"    // the slot of a name moves to another master
)

var network = []string{kill, freeze, cut, late, delay, stall, drop}

// everybodys are the faults of servers, which all workers feel.
var everybodys = []string{storm, pause, crash, clock, back, still, full, busy, promote, split, move}

// A tempo is how fast faults follow one another.
type tempo struct {
	gap  time.Duration // between two, at most
	rest time.Duration // between two of servers, at least, so that they serve in between
}

// plan makes the faults of a round from its seed.
func plan(r *rand.Rand, mix []string, workers, servers int, length time.Duration, pace tempo) (all []fault) {
	next := time.Duration(0) // for a fault of a server
	for at := 200 * time.Millisecond; at < length; at += below(r, pace.gap) {
		f := fault{what: mix[r.IntN(len(mix))], worker: r.IntN(workers), server: r.IntN(servers+1) - 1, from: at, seed: r.Uint64()}
		switch f.what {
		case kill, cut, crash, promote:
		case late, delay, twice:
			f.length, f.by = below(r, time.Second), below(r, 2*ttl)
		case storm:
			f.length = below(r, 2*time.Second)
		case clock:
			f.by = below(r, 4*ttl) - 2*ttl
		case back:
			f.by, f.length = below(r, ttl/4), 2*ttl // what it makes longer ends before the round does
		case split:
			f.length = ttl + below(r, 4*ttl) // long enough for the Sentinels, mostly
		default:
			f.length = below(r, 2*ttl) // half of them longer than a lease
		}
		if slices.Contains(everybodys, f.what) {
			if at < next {
				continue
			}
			next = at + pace.rest
			f.server = max(f.server, 0)
			at += ttl / 2
			if f.what == clock || f.what == back {
				f.server = servers - 1
			}
		}
		if f.from+f.length+f.by < length {
			all = append(all, f)
		}
	}
	return all
}

func below(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// A step begins or ends a fault.
type step struct {
	at time.Duration
	do func()
}

// steps are in the order in which they are to be done.
func inOrder(steps []step) []step {
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}
