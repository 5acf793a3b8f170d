// Package wakemodel is a model of the wait queue of one name of the Redis engine. It visits every
// reachable state of small systems, in which clients freeze, thaw and die at any time, messages are
// lost, and PUBLISH is refused or does not count. It checks the rule that nobody sleeps past a free
// name: if the first waiter of a running client fits beside the holders that run or are confirmed,
// it is granted within a hand-over's time for each fault, and one more.
package wakemodel

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// One tick is half a GRANT of the scripts.
const grant = 2 // ticks

// Rule is the part of the protocol that a test may take out.
type Rule struct {
	Poll  int  // most ticks between two touches of a client
	Alive int  // ticks for which a touch keeps its client alive
	Mine  bool // a touch answers with any grant of its client whose message was lost; else exclusive ones only
	TTL   int  // of a confirmed lease
}

// Protocol is the rule that the scripts and the engine follow.
var Protocol = Rule{Poll: 1, Alive: grant, Mine: true, TTL: 10}

// Bound is the size of the systems to visit.
type Bound struct{ Clients, Waiters, Faults, Losses int }

type world struct{ cluster, refused bool } // PUBLISH does not count; PUBLISH is refused

const ( // of a client
	live = iota
	frozen
	dead
)
const ( // of a waiter
	queued = iota
	told   // has its grant
	done
)

type waiter struct {
	client int
	kind   byte // x exclusive, s shared with weight 1 of 2, b shared with weight 2 of 2
	state  int
}
type holder struct{ who, ends, sure int } // who -1: the first holder; sure: confirmed

type state struct {
	lock   []holder
	queue  []int // waiters by ticket
	ws     []waiter
	status []int
	alive  []int
	due    []int
	inbox  [][]int // grants that a frozen client has not read
	base   byte    // kind of the first holder, 0 after its release
	faults int     // freezes and deaths left
	losses int     // messages that may still be lost
	faulty int     // so many freezes and deaths happened
	stuck  int
}

// key identifies a state.
func (s *state) key() string {
	var k []byte
	add := func(ns ...int) {
		k = binary.AppendVarint(k, int64(len(ns)))
		for _, n := range ns {
			k = binary.AppendVarint(k, int64(n))
		}
	}
	for _, h := range s.lock {
		add(h.who, h.ends, h.sure)
	}
	add(s.queue...)
	for _, w := range s.ws {
		k = append(k, byte(w.state))
	}
	add(s.status...)
	add(s.alive...)
	add(s.due...)
	for _, in := range s.inbox {
		add(in...)
	}
	add(int(s.base), s.faults, s.losses, s.faulty, s.stuck)
	return string(k)
}

func (s *state) clone() *state {
	t := *s
	t.lock, t.queue, t.ws, t.status = slices.Clone(s.lock), slices.Clone(s.queue), slices.Clone(s.ws), slices.Clone(s.status)
	t.alive, t.due, t.inbox = slices.Clone(s.alive), slices.Clone(s.due), slices.Clone(s.inbox)
	for i := range t.inbox {
		t.inbox[i] = slices.Clone(t.inbox[i])
	}
	return &t
}
func (s *state) kind(h holder) byte {
	if h.who < 0 {
		return s.base
	}
	return s.ws[h.who].kind
}
func fits(kinds []byte, k byte) bool {
	used := 0
	for _, o := range kinds {
		if o == 'x' {
			return false
		}
		used++
		if o == 'b' {
			used++
		}
	}
	switch k {
	case 'x':
		return used == 0
	case 's':
		return used < 2
	}
	return used == 0
}
func (s *state) kinds(counts func(holder) bool) (ks []byte) {
	for _, h := range s.lock {
		if counts(h) {
			ks = append(ks, s.kind(h))
		}
	}
	return ks
}
func all(holder) bool { return true }
func (s *state) holds(w int) int {
	return slices.IndexFunc(s.lock, func(h holder) bool { return h.who == w })
}

// run is one rule in one world; choose returns one of n possibilities.
type run struct {
	Rule
	world
	choose func(n int) int
}

func (r *run) deliver(s *state, w int) { // the client runs and reads its grant: it confirms
	i := s.holds(w)
	if s.ws[w].state != queued {
		return
	}
	if i < 0 { // expired: it asks at once and puts its request back
		s.due[s.ws[w].client] = 0
		return
	}
	s.ws[w].state = told
	s.lock[i].sure, s.lock[i].ends = 1, r.TTL
}

func (r *run) handOff(s *state, w int) {
	c := s.ws[w].client
	if s.status[c] == dead && !r.cluster && !r.refused {
		s.alive[c] = 0
		return
	}
	s.lock = append(s.lock, holder{w, grant, 0})
	switch {
	case r.refused || s.status[c] == dead:
	case s.losses > 0 && r.choose(2) == 1:
		s.losses--
	case s.status[c] == frozen:
		s.inbox[c] = append(s.inbox[c], w)
	default:
		r.deliver(s, w)
	}
}

func (r *run) advance(s *state) {
	for len(s.queue) > 0 {
		w := s.queue[0]
		c := s.ws[w].client
		if s.alive[c] > 0 {
			if !fits(s.kinds(all), s.ws[w].kind) {
				break
			}
			r.handOff(s, w)
		} else if slices.ContainsFunc(s.lock, func(h holder) bool { return s.kind(h) == 'x' }) {
			break // the scripts look at the queue only if the lock is free or shared
		}
		s.queue = s.queue[1:]
	}
}

func (r *run) touch(s *state, c int) {
	s.alive[c] = r.Alive
	for w := range s.ws {
		if s.ws[w].client != c || s.ws[w].state != queued {
			continue
		}
		switch h := s.holds(w); {
		case h >= 0 && (r.Mine || s.ws[w].kind == 'x' || !r.refused):
			r.deliver(s, w)
		case h < 0 && !slices.Contains(s.queue, w):
			s.queue = append(s.queue, w)
			slices.Sort(s.queue)
		}
	}
	r.advance(s)
	next := r.Poll
	for _, h := range s.lock {
		next = min(next, max(h.ends, 1))
	}
	s.due[c] = max(min(next, r.Poll), 1)
}

func (r *run) tick(s *state) {
	for i := range s.lock {
		h := &s.lock[i]
		h.ends--
		if h.who < 0 || h.sure == 1 && s.status[s.ws[h.who].client] == live {
			h.ends = r.TTL // renewed
		}
	}
	freed := false
	s.lock = slices.DeleteFunc(s.lock, func(h holder) bool {
		if h.who >= 0 && h.sure == 1 && s.status[s.ws[h.who].client] == live { // a turn lasts a tick
			s.ws[h.who].state = done
			freed = true
			return true
		}
		return h.ends <= 0
	})
	for c := range s.alive {
		s.alive[c] = max(s.alive[c]-1, 0)
		s.due[c] = max(s.due[c]-1, 0)
	}
	if freed {
		r.advance(s)
	}
	var now []int
	for c := range s.due {
		waits := slices.ContainsFunc(s.ws, func(w waiter) bool { return w.client == c && w.state == queued })
		if !waits {
			s.due[c] = r.Poll
		} else if s.due[c] == 0 && s.status[c] == live {
			now = append(now, c)
		}
	}
	if len(now) > 1 && r.choose(2) == 1 {
		slices.Reverse(now)
	}
	for _, c := range now {
		if slices.ContainsFunc(s.ws, func(w waiter) bool { return w.client == c && w.state == queued }) {
			r.touch(s, c)
		}
	}
	r.judge(s)
}

func (r *run) judge(s *state) {
	sure := s.kinds(func(h holder) bool {
		return h.who < 0 || h.sure == 1 || s.status[s.ws[h.who].client] == live && s.holds(h.who) < 0
	})
	for _, w := range s.ws {
		if w.state != queued || s.status[w.client] != live {
			continue
		}
		if fits(sure, w.kind) {
			s.stuck++
		} else {
			s.stuck = 0
		}
		return
	}
	s.stuck = 0
}

// next returns all states that can follow.
func next(rule Rule, w world, s *state) (out []*state) {
	try := func(act func(*run, *state)) { // enumerates the choices within one step
		for plan := []int{}; ; {
			used, width := 0, []int{}
			t := s.clone()
			r := &run{rule, w, func(n int) int {
				width = append(width, n)
				used++
				if used > len(plan) {
					plan = append(plan, 0)
				}
				return plan[used-1]
			}}
			act(r, t)
			out = append(out, t)
			i := used - 1
			for ; i >= 0 && plan[i]+1 == width[i]; i-- {
			}
			if i < 0 {
				return
			}
			plan = append(slices.Clone(plan[:i]), plan[i]+1)
		}
	}
	try(func(r *run, t *state) { r.tick(t) })
	if s.base != 0 {
		try(func(r *run, t *state) {
			t.lock = slices.DeleteFunc(t.lock, func(h holder) bool { return h.who < 0 })
			t.base = 0
			r.advance(t)
		})
	}
	for c := range s.status {
		switch {
		case s.status[c] == live && s.faults > 0:
			for _, how := range []int{frozen, dead} {
				t := s.clone()
				t.status[c], t.faults, t.faulty = how, t.faults-1, t.faulty+1
				out = append(out, t)
			}
		case s.status[c] == frozen:
			try(func(r *run, t *state) {
				t.status[c] = live
				for _, w := range t.inbox[c] {
					r.deliver(t, w)
				}
				t.inbox[c] = nil
			})
		}
	}
	return out
}

func check(rule Rule, w world, first *state, seen map[string]bool) *state {
	front := []*state{first}
	for len(front) > 0 {
		var then []*state
		for _, s := range front {
			for _, t := range next(rule, w, s) {
				if t.stuck > grant*(1+t.faulty)+1 {
					return t
				}
				if k := t.key(); !seen[k] {
					seen[k] = true
					then = append(then, t)
				}
			}
		}
		front = then
	}
	return nil
}

// queues returns all queues of up to n waiters of the clients.
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
		for c := 0; c <= min(most, clients-1); c++ { // names of clients do not matter
			for _, k := range []byte("xsb") {
				grow(append(slices.Clone(q), waiter{c, k, queued}))
			}
		}
	}
	grow(nil)
	return qs
}

// Check visits all systems up to a bound. It returns how many systems and states it visited, and the
// first system that violates the rule, or "".
func Check(rule Rule, b Bound) (systems, states int, violation string) {
	for _, w := range []world{{}, {cluster: true}, {refused: true}} {
		for _, base := range []byte("xs") {
			for _, q := range queues(b.Clients, b.Waiters) {
				if fits([]byte{base}, q[0].kind) {
					continue // it would have been granted when it came
				}
				seen := map[string]bool{}
				stuck := check(rule, w, first(rule, b, base, q), seen)
				systems, states = systems+1, states+len(seen)
				if stuck != nil {
					return systems, states, fmt.Sprintf("%+v, first holder %c, queue %+v: %+v", w, base, q, *stuck)
				}
			}
		}
	}
	return systems, states, ""
}

// first returns the state in which a holder of kind base runs and everybody of q waits.
func first(rule Rule, b Bound, base byte, q []waiter) *state {
	s := &state{ws: q, base: base, faults: b.Faults, losses: b.Losses, lock: []holder{{-1, rule.TTL, 1}}}
	for range b.Clients {
		s.status, s.alive = append(s.status, live), append(s.alive, rule.Alive)
		s.due, s.inbox = append(s.due, rule.Poll), append(s.inbox, nil)
	}
	for i := range q {
		s.queue = append(s.queue, i)
	}
	return s
}
