// Package wakemodel is a model of the wait queue of one name of the Redis engine. It visits every
// reachable state of small systems, in which clients freeze, thaw and die at any time, messages are
// lost, and PUBLISH is refused or does not count. It checks the rule that nobody sleeps past a free
// name: if the first waiter of a running client fits beside the holders that run or are confirmed,
// it is granted within a hand-over's time for each fault, and one more.
//
// Holders and waiters are exclusive, or shared with a limit of two and a weight of one or two. These
// systems were exhausted, with every queue, with and without messages that count; a fault is a freeze or
// a death, and a frozen client may thaw at any time:
//
//	clients  waiters  faults  lost messages  systems      states
//	2        4        2       1                3,870  16,889,102
//	2        4        3       2                3,870  82,841,514
//	3        3        3       1                  765  10,611,396
//	3        4        2       1                6,435  42,821,283
//
// On two cores, the last one takes two to five minutes and the second one five. FENCELOCK_SLOW=1 runs
// the others.
package wakemodel

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
)

// One tick is half a GRANT of the scripts.
const grant = 2 // ticks

// Rule is the part of the protocol that a test may take out.
type Rule struct {
	Poll   int8 // most ticks between two touches of a client
	Alive  int8 // ticks for which a touch keeps its client alive
	Mine   bool // a touch answers with any grant of its client whose message was lost; else exclusive ones only
	Leave  bool // the entry of a client that is not alive leaves at its turn
	Rejoin bool // a touch puts back the entries of its client that have left, and those whose grant has expired
	Serve  bool // a touch hands a free name on; else only a release does
	Expire bool // a grant that is not confirmed expires; else it lasts for a TTL
	TTL    int8 // of a confirmed lease
}

// Protocol is the rule that the scripts and the engine follow.
var Protocol = Rule{Poll: 1, Alive: grant, Mine: true, Leave: true, Rejoin: true, Serve: true, Expire: true, TTL: 10}

// Bound is the size of the systems to visit: at most 3 clients and 4 waiters. A fault is a freeze or a
// death.
type Bound struct{ Clients, Waiters, Faults, Losses int }

const (
	maxClients = 3
	maxWaiters = 4
)

type world struct{ cluster, refused bool } // PUBLISH does not count; PUBLISH is refused

const ( // of a client
	live = iota
	frozen
	dead
)

type waiter struct {
	client int
	kind   byte // x exclusive, s shared with weight 1 of 2, b shared with weight 2 of 2
}

// first is the holder beside the waiters.
const first = maxWaiters

// set is a set of waiters and the first holder.
type set uint8

func (s set) has(w int) bool { return s&(1<<w) != 0 }
func (s *set) add(w int)     { *s |= 1 << w }
func (s *set) remove(w int)  { *s &^= 1 << w }

// each returns the members in the order of their tickets.
func (s set) each(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros8(uint8(s))) {
			return
		}
	}
}

// state is comparable: two states are equal if nothing that follows differs.
type state struct {
	lock, sure set              // the holders; those that have confirmed
	ends       [first + 1]int8  // ticks until the lease of a holder ends
	queue      set              // by ticket
	told, done set              // waiters that have their grant; that have also released it
	inbox      set              // grants that a frozen client has not read
	status     [maxClients]int8 // of clients
	alive      [maxClients]int8 // ticks for which they count as alive
	due        [maxClients]int8 // ticks until they touch
	faults     int8             // freezes and deaths left
	losses     int8             // messages that may still be lost
	faulty     int8             // so many freezes and deaths happened
	stuck      int8
}

// system is one rule in one world with its waiters; choose returns one of n possibilities.
type system struct {
	Rule
	world
	ws      []waiter
	base    byte // the kind of the first holder
	clients int
	choose  func(n int) int
}

func (r *system) kind(w int) byte {
	if w == first {
		return r.base
	}
	return r.ws[w].kind
}

// runs reports whether the client of a waiter runs. The first holder always does.
func (r *system) runs(s *state, w int) bool { return w == first || s.status[r.ws[w].client] == live }

// waits reports whether a waiter has no grant yet.
func waits(s *state, w int) bool { return !s.told.has(w) && !s.done.has(w) }

// fits reports whether a kind fits beside holders.
func (r *system) fits(holders set, k byte) bool {
	used := 0
	for w := range holders.each {
		switch r.kind(w) {
		case 'x':
			return false
		case 'b':
			used++
		}
		used++
	}
	if k == 's' {
		return used < 2
	}
	return used == 0
}

func (r *system) exclusive(holders set) bool {
	for w := range holders.each {
		if r.kind(w) == 'x' {
			return true
		}
	}
	return false
}

func (r *system) deliver(s *state, w int) { // the client runs and reads its grant: it confirms
	if !waits(s, w) {
		return
	}
	if !s.lock.has(w) { // expired: it asks at once and puts its request back
		s.due[r.ws[w].client] = 0
		return
	}
	s.told.add(w)
	s.sure.add(w)
	s.ends[w] = r.TTL
}

func (r *system) handOff(s *state, w int) {
	c := r.ws[w].client
	if s.status[c] == dead && !r.cluster && !r.refused {
		s.alive[c] = 0
		return
	}
	s.lock.add(w)
	if s.ends[w] = grant; !r.Expire {
		s.ends[w] = r.TTL
	}
	switch {
	case r.refused || s.status[c] == dead:
	case s.losses > 0 && r.choose(2) == 1:
		s.losses--
	case s.status[c] == frozen:
		s.inbox.add(w)
	default:
		r.deliver(s, w)
	}
}

func (r *system) serve(s *state) {
	for w := range s.queue.each {
		switch {
		case s.alive[r.ws[w].client] > 0:
			if !r.fits(s.lock, r.ws[w].kind) {
				return
			}
			r.handOff(s, w)
		case !r.Leave || r.exclusive(s.lock):
			return // the scripts look at the queue only if the lock is free or shared
		}
		s.queue.remove(w)
	}
}

func (r *system) touch(s *state, c int) {
	s.alive[c] = r.Alive
	for w := range r.ws {
		if r.ws[w].client != c || !waits(s, w) {
			continue
		}
		switch {
		case s.lock.has(w):
			if r.Mine || r.ws[w].kind == 'x' || !r.refused {
				r.deliver(s, w)
			}
		case r.Rejoin:
			s.queue.add(w)
		}
	}
	if r.Serve {
		r.serve(s)
	}
	next := r.Poll
	for w := range s.lock.each {
		next = min(next, max(s.ends[w], 1))
	}
	s.due[c] = max(next, 1)
}

// asks reports whether a client has a waiter.
func (r *system) asks(s *state, c int) bool {
	for w := range r.ws {
		if r.ws[w].client == c && waits(s, w) {
			return true
		}
	}
	return false
}

func (r *system) tick(s *state) {
	freed := false
	for w := range s.lock.each {
		s.ends[w]--
		switch {
		case w == first:
			s.ends[w] = r.TTL // renewed
		case s.sure.has(w) && r.runs(s, w): // a turn lasts a tick
			s.done.add(w)
			freed = true
			s.end(w)
		case s.ends[w] <= 0:
			s.end(w)
		}
	}
	for c := range r.clients {
		s.alive[c] = max(s.alive[c]-1, 0)
		s.due[c] = max(s.due[c]-1, 0)
	}
	if freed {
		r.serve(s)
	}
	var now []int
	for c := range r.clients {
		if !r.asks(s, c) {
			s.due[c] = r.Poll
		} else if s.due[c] == 0 && s.status[c] == live {
			now = append(now, c)
		}
	}
	if len(now) > 1 { // in any order
		for i := range now {
			j := i + r.choose(len(now)-i)
			now[i], now[j] = now[j], now[i]
		}
	}
	for _, c := range now {
		if r.asks(s, c) {
			r.touch(s, c)
		}
	}
	r.judge(s)
}

// end removes a holder.
func (s *state) end(w int) {
	s.lock.remove(w)
	s.sure.remove(w)
	s.ends[w] = 0
}

func (r *system) judge(s *state) {
	var sure set
	for w := range s.lock.each {
		if w == first || s.sure.has(w) {
			sure.add(w)
		}
	}
	for w := range r.ws {
		if !waits(s, w) || !r.runs(s, w) {
			continue
		}
		if r.fits(sure, r.ws[w].kind) {
			s.stuck++
		} else {
			s.stuck = 0
		}
		return
	}
	s.stuck = 0
}

// next calls yield for all states that can follow.
func (r *system) next(s state, yield func(state)) {
	try := func(act func(*state)) { // enumerates the choices within one step
		var plan, width []int
		for {
			used := 0
			width = width[:0]
			r.choose = func(n int) int {
				width = append(width, n)
				if used++; used > len(plan) {
					plan = append(plan, 0)
				}
				return plan[used-1]
			}
			t := s
			act(&t)
			yield(t)
			i := used - 1
			for ; i >= 0 && plan[i]+1 == width[i]; i-- {
			}
			if i < 0 {
				return
			}
			plan[i]++
			plan = plan[:i+1]
		}
	}
	try(r.tick)
	if s.lock.has(first) {
		try(func(t *state) {
			t.end(first)
			r.serve(t)
		})
	}
	for c := range r.clients {
		switch {
		case s.status[c] == live && s.faults > 0:
			for _, how := range []int8{frozen, dead} {
				t := s
				t.status[c], t.faults, t.faulty = how, t.faults-1, t.faulty+1
				yield(t)
			}
		case s.status[c] == frozen:
			try(func(t *state) {
				t.status[c] = live
				for w := range t.inbox.each {
					if r.ws[w].client == c {
						t.inbox.remove(w)
						r.deliver(t, w)
					}
				}
			})
		}
	}
}

// check visits all states that can follow s. It returns how many there are, and one that violates the
// rule, if there is one.
func (r *system) check(s state) (states int, stuck *state) {
	seen := map[state]struct{}{s: {}}
	for front := []state{s}; len(front) > 0; {
		last := front[len(front)-1]
		front = front[:len(front)-1]
		r.next(last, func(t state) {
			if t.stuck > grant*(1+t.faulty)+1 {
				stuck = &t
				return
			}
			if _, known := seen[t]; !known {
				seen[t] = struct{}{}
				front = append(front, t)
			}
		})
		if stuck != nil {
			break
		}
	}
	return len(seen), stuck
}

// start returns the state in which the first holder runs and everybody waits.
func (r *system) start(b Bound) state {
	s := state{faults: int8(b.Faults), losses: int8(b.Losses)}
	s.lock.add(first)
	s.sure.add(first)
	s.ends[first] = r.TTL
	for c := range r.clients {
		s.alive[c], s.due[c] = r.Alive, r.Poll
	}
	for w := range r.ws {
		s.queue.add(w)
	}
	return s
}

// queues returns all queues of 2 to n waiters of the clients.
func queues(clients, n int) (qs [][]waiter) {
	var grow func([]waiter)
	grow = func(q []waiter) {
		if len(q) >= 2 {
			qs = append(qs, slices.Clone(q))
		}
		if len(q) == n {
			return
		}
		most := 0
		for _, w := range q {
			most = max(most, w.client+1)
		}
		for c := range min(most+1, clients) { // names of clients do not matter
			for _, k := range []byte("xsb") {
				grow(append(slices.Clone(q), waiter{c, k}))
			}
		}
	}
	grow(nil)
	return qs
}

// systems returns all systems up to a bound.
func systems(rule Rule, b Bound) (all []system) {
	for _, w := range []world{{}, {cluster: true}, {refused: true}} {
		for _, base := range []byte("xs") {
			for _, q := range queues(b.Clients, b.Waiters) {
				r := system{Rule: rule, world: w, ws: q, base: base}
				for _, w := range q {
					r.clients = max(r.clients, w.client+1)
				}
				if !r.fits(1<<first, q[0].kind) { // else it would have been granted when it came
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// Check visits all systems up to a bound, as many at a time as there are cores. It returns how many
// systems and states it visited, and a system that violates the rule, or "".
func Check(rule Rule, b Bound) (visited, states int, violation string) {
	if b.Clients > maxClients || b.Waiters > maxWaiters {
		return 0, 0, fmt.Sprintf("the model has no room for %+v", b)
	}
	all := systems(rule, b)
	var mu sync.Mutex // guards the results and all
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() { // ends when no system is left
			for {
				mu.Lock()
				if len(all) == 0 || violation != "" {
					mu.Unlock()
					return
				}
				r := all[0]
				all = all[1:]
				mu.Unlock()
				n, stuck := r.check(r.start(b))
				mu.Lock()
				visited, states = visited+1, states+n
				if stuck != nil {
					violation = fmt.Sprintf("%+v, first holder %c, queue %+v: %+v", r.world, r.base, r.ws, *stuck)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return visited, states, violation
}
