//go:build unix

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Fault is something that happens to a worker or a server for a while.
type Fault struct {
	What   string
	worker int // or the server, if What is about one
	server int // of those behind the worker's proxies; -1 means all
	from   time.Duration
	length time.Duration
	by     time.Duration // how late
	seed   uint64        // for what is left to chance
}

// String returns what happens, when and to whom.
func (f Fault) String() string {
	return fmt.Sprintf("%v to %v: %s", f.from.Round(time.Millisecond), f.end().Round(time.Millisecond), f.text())
}

// end is when the fault itself is over. What it has delayed may arrive later.
func (f Fault) end() time.Duration { return f.from + f.length }

const allServers = "all servers"

// at is the server that all workers feel the fault of, or "" if one worker feels it.
func (f Fault) at() string {
	switch {
	case slices.Contains([]string{promote, split, move}, f.What):
		return allServers
	case slices.Contains(everybodys, f.What):
		return fmt.Sprintf("server %d", f.server)
	}
	return ""
}

func (f Fault) text() string {
	s := f.What
	switch server := f.at(); {
	case server == "":
		s += fmt.Sprintf(" of worker %d", f.worker)
		if f.server >= 0 && !slices.Contains(processes, f.What) {
			s += fmt.Sprintf(" at server %d", f.server)
		}
	case server != allServers:
		s += " of " + server
	}
	if f.by != 0 { // late, delay, twice, clock, back
		s += fmt.Sprintf(" by %v", f.by.Round(time.Millisecond))
	}
	return s
}

// What can happen. Those of clients and of the network are safe on every engine.
const (
	kill   = "kill"   // a worker's process is killed, and another one takes its place
	freeze = "freeze" // a worker's process stands still
	cut    = "cut"    // a worker's connections are reset
	late   = "late"   // what a worker sends arrives late, even if it has given up
	delay  = "delay"  // what a worker receives arrives late
	stall  = "stall"  // one connection of a worker stands still
	slow   = "slow"   // a worker's connections transfer little in a second
	lossy  = "lossy"  // a part of what a worker sends and receives must be sent again
	drop   = "drop"   // nothing arrives in one direction, or in both
	storm  = "storm"  // a server ends half of its connections, several times a second
	pause  = "pause"  // a server stands still
	crash  = "crash"  // a server is killed and started again
	clock  = "clock"  // the wall clock of a server is stepped
	skew   = "skew"   // the wall clock of a worker is stepped, until its process ends
	back   = "back"   // the wall clock of a server is set back a little, for good
	still  = "still"  // the process that serves one connection stands still
	full   = "full"   // the server's table of locks is full
	busy   = "busy"   // a script keeps the server busy, and it refuses all else
	twice  = "twice"  // what a worker sends arrives a second time, soon or late
	flush  = "flush"  // the server's data are deleted

	promote = "promote" // the Sentinels are asked for another master
	split   = "split"   // the master is cut off, with a part of the workers
	move    = "move"    // the slot of a name moves to another master
)

var (
	processes = []string{kill, freeze}
	network   = []string{kill, freeze, cut, late, delay, stall, slow, lossy, drop}

	// everybodys are the faults of servers, which all workers feel.
	everybodys = []string{storm, pause, crash, clock, back, still, full, busy, flush, promote, split, move}
)

// A tempo is how fast faults follow one another.
type tempo struct {
	ttl  time.Duration // of the locks
	gap  time.Duration // between two, at most
	rest time.Duration // between two of servers, at least, so that they serve in between
}

// plan makes the faults of a round from its seed.
func plan(r *rand.Rand, mix []string, workers, servers int, length time.Duration, pace tempo) (all []Fault) {
	if len(mix) == 0 {
		return nil
	}
	if slices.Contains(mix, skew) { // no engine promises anything if the clocks of both are wrong
		wrong := []string{clock, skew}[r.IntN(2)]
		mix = slices.DeleteFunc(slices.Clone(mix), func(f string) bool { return f == wrong })
	}
	next := time.Duration(0) // for a fault of a server
	for at := 200 * time.Millisecond; at < length; at += below(r, pace.gap) {
		f := Fault{What: mix[r.IntN(len(mix))], worker: r.IntN(workers), server: r.IntN(servers+1) - 1, from: at, seed: r.Uint64()}
		f.shape(r, pace.ttl)
		if slices.Contains(everybodys, f.What) {
			if at < next {
				continue
			}
			next = at + pace.rest
			f.server = max(f.server, 0)
			at += pace.ttl / 2
			if f.What == clock || f.What == back {
				f.server = servers - 1
			}
		}
		if f.end()+f.by < length {
			all = append(all, f)
		}
	}
	return all
}

// shape chooses how long a fault lasts and how late it makes things.
func (f *Fault) shape(r *rand.Rand, ttl time.Duration) {
	switch f.What {
	case kill, cut, crash, promote, flush:
	case late, delay, twice:
		f.length, f.by = below(r, ttl), below(r, 2*ttl)
	case storm:
		f.length = below(r, 2*ttl)
	case clock, skew:
		f.by = below(r, 4*ttl) - 2*ttl
	case back:
		f.by, f.length = below(r, ttl/4), 2*ttl // what it makes longer ends before the round does
	case split:
		f.length = ttl + below(r, 4*ttl) // long enough for the Sentinels, mostly
	default:
		f.length = below(r, 2*ttl) // half of them longer than a lease
	}
}

func below(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// A step begins or ends a fault.
type step struct {
	at   time.Duration
	do   func()
	ends bool // a fault that has begun, if it has
}
