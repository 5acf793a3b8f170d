package schedule_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/schedule"
)

// The test drives a schedule through every order of what may happen to it, at
// small times and to some depth, beside a model of what surrounds it: two locks,
// clocks, timers that fire late, and goroutines between two calls of Due.

const (
	near   = 2 * schedule.MinSleep        // when a lock is due again, from now
	far    = 3 * schedule.MaxSleep        // the same, beyond a sleep
	stride = schedule.MaxSleep/2 + 3*near // a step of the clock that passes several of these
)

// subject is a Schedule, or a broken one.
type subject interface {
	Set(e *schedule.Entry[int], at, now time.Duration) schedule.Alarm
	Close(e *schedule.Entry[int])
	Due(now hold.Instant) ([]int, schedule.Alarm)
	Inner() schedule.Inner
}

// move is one thing that may happen: a kind, and whom it happens to.
type move struct{ kind, who int }

const (
	wait    = iota // the clock goes on: who 0 a little, 1 by a stride
	jump           // another clock jumps
	read           // who reads the clock, to acquire soon
	near1          // who is acquired, and due soon
	far1           // who is acquired, and due late
	release        // who is released
	fire           // the timer with this index fires
	moved          // who is queued, and due soon instead: an answer came
	serve          // the goroutine with this index looks at its next lock, or calls Due again
)

func (m move) String() string {
	kinds := [...]string{"wait", "jump", "read", "acquire, due soon", "acquire, due late", "release", "fire", "move", "serve"}
	return fmt.Sprint(kinds[m.kind], " ", m.who)
}

// world is a schedule and what surrounds it.
type world struct {
	s      subject
	clock  time.Duration
	ahead  time.Duration           // of the wall clock
	locks  [2]*schedule.Entry[int] // nil: released
	read   [2]time.Duration        // what who has read; 0: nothing
	taken  [2]bool                 // a goroutine is looking at it
	timers []time.Duration         // running, in the order they were started
	last   int                     // the index of the timer that was started last; -1 when it fired
	ticks  []tick                  // goroutines between two calls of Due
	stale  bool                    // a time that was read a while ago was used; there may be a timer too many then
	seen   time.Duration           // ahead, at the last Due
	twice  bool                    // two were awake at once: the schedule knows no more than that one is done
	wrong  string
}

type tick struct {
	now time.Duration
	due []*schedule.Entry[int]
}

// do lets one thing happen, and reports whether it can.
func (w *world) do(m move) bool {
	switch m.kind {
	case wait:
		w.clock += []time.Duration{schedule.MinSleep, stride}[m.who]
	case jump:
		if w.ahead > 0 {
			return false
		}
		w.ahead = time.Minute
	case read:
		if w.locks[m.who] != nil || w.read[m.who] != 0 {
			return false
		}
		w.read[m.who] = w.clock
	case near1, far1:
		if w.read[m.who] == 0 {
			return false
		}
		w.locks[m.who] = &schedule.Entry[int]{Item: m.who}
		w.set(w.locks[m.who], w.read[m.who], m.kind == near1)
		w.read[m.who] = 0
	case release:
		if w.locks[m.who] == nil {
			return false
		}
		w.s.Close(w.locks[m.who])
		if _, queued := w.locks[m.who].At(); queued {
			w.fail("a released lock is queued")
		}
		w.locks[m.who], w.taken[m.who] = nil, false
	case fire:
		return w.fire(m.who)
	case moved:
		if w.locks[m.who] == nil || w.taken[m.who] {
			return false
		}
		w.set(w.locks[m.who], w.clock, true)
	case serve:
		return w.serve(m.who)
	}
	return true
}

func (w *world) set(e *schedule.Entry[int], now time.Duration, soon bool) {
	at := now + far
	if soon {
		at = now + near
	}
	a := w.s.Set(e, at, now)
	if a.Do != schedule.Leave && len(w.ticks) == 1 && !w.twice {
		w.fail("at %v a timer is set for %v, although somebody is awake", now, a.At)
	}
	w.alarm(a, now)
}

// alarm carries out what the schedule wants done about the timer.
func (w *world) alarm(a schedule.Alarm, now time.Duration) {
	if a.Do != schedule.Leave && (a.At < now+schedule.MinSleep || a.At > now+schedule.MaxSleep) {
		w.fail("at %v a timer for %v", now, a.At)
	}
	w.stale = w.stale || now < w.clock
	if a.Do == schedule.Start && !w.stale && slices.ContainsFunc(w.timers, func(t time.Duration) bool { return t > now && t <= a.At }) {
		w.fail("at %v a timer for %v, although %v are running", now, a.At, w.timers)
	}
	switch a.Do {
	case schedule.Start:
		w.timers = append(w.timers, a.At)
		w.last = len(w.timers) - 1
	case schedule.Move:
		if w.last < 0 { // it has fired meanwhile, and is started again
			w.timers = append(w.timers, a.At)
			w.last = len(w.timers) - 1
		}
		w.timers[w.last] = a.At
	}
}

func (w *world) fire(i int) bool {
	if i >= len(w.timers) || w.timers[i] > w.clock {
		return false
	}
	w.timers = slices.Delete(w.timers, i, i+1)
	switch {
	case w.last == i:
		w.last = -1
	case w.last > i:
		w.last--
	}
	w.due(-1)
	return true
}

// due calls Due for a new goroutine, or for that with index i.
func (w *world) due(i int) {
	now := hold.Instant{Mono: w.clock, Boot: w.clock, Wall: w.clock + w.ahead}
	jumped := w.ahead != w.seen
	w.seen = w.ahead
	due, a := w.s.Due(now)
	w.alarm(a, w.clock)
	t := tick{now: w.clock}
	for _, who := range due {
		if w.locks[who] == nil || w.taken[who] {
			w.fail("lock %d is due, but released, or somebody looks at it already", who)
			continue
		}
		if at, _ := w.locks[who].At(); at > w.clock && !jumped {
			w.fail("at %v a lock is looked at that is due at %v", w.clock, at)
		}
		w.taken[who] = true
		t.due = append(t.due, w.locks[who])
	}
	for _, e := range w.locks {
		if e == nil {
			continue
		}
		if at, queued := e.At(); queued && (jumped || at <= w.clock) {
			w.fail("a lock that was due at %v is still queued at %v, jumped %v", at, w.clock, jumped)
		}
	}
	if i >= 0 {
		w.ticks = slices.Delete(w.ticks, i, i+1)
	}
	if len(t.due) > 0 {
		w.ticks = append(w.ticks, t)
	}
	w.twice = len(w.ticks) > 1 || len(w.ticks) == 1 && (w.twice || len(t.due) == 0)
}

// serve lets a goroutine go on.
func (w *world) serve(i int) bool {
	if i >= len(w.ticks) {
		return false
	}
	t := &w.ticks[i]
	if len(t.due) == 0 {
		w.due(i)
		return true
	}
	e := t.due[0]
	t.due = t.due[1:]
	if w.locks[e.Item] == e {
		w.taken[e.Item] = false
	}
	w.set(e, t.now, true) // also if it was released meanwhile
	return true
}

// check looks for a queued lock that nobody will look at in time.
func (w *world) check() {
	if len(w.ticks) > 0 {
		return
	}
	for who, e := range w.locks {
		if e == nil {
			continue
		}
		at, queued := e.At()
		if !queued {
			w.fail("lock %d is held and not queued", who)
		}
		in := func(limit time.Duration) bool {
			return slices.ContainsFunc(w.timers, func(t time.Duration) bool { return t <= limit })
		}
		if !in(at+schedule.MinSleep) || !in(w.clock+schedule.MaxSleep) {
			w.fail("at %v lock %d is due at %v, and the timers are %v", w.clock, who, at, w.timers)
		}
	}
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// state tells worlds apart, by times from now.
func (w *world) state() string {
	in := w.s.Inner()
	b := fmt.Appendf(nil, "%v %v %v %v %d %d %d|", w.stale, w.twice, in.Armed, in.Awake, in.Fires-w.clock, w.ahead, w.seen)
	for who, e := range w.locks {
		if e != nil {
			at, queued := e.At()
			b = fmt.Appendf(b, "%d %v %v", at-w.clock, queued, w.taken[who])
		}
		if b = append(b, ';'); w.read[who] != 0 {
			b = fmt.Appendf(b, "%d", w.read[who]-w.clock)
		}
		b = append(b, ';')
	}
	for i, t := range w.timers {
		b = fmt.Appendf(b, "%d %v,", t-w.clock, i == w.last)
	}
	for _, t := range w.ticks {
		b = fmt.Appendf(b, "[%d", t.now-w.clock)
		for _, e := range t.due {
			b = fmt.Appendf(b, " %d %v", e.Item, w.locks[e.Item] == e)
		}
		b = append(b, ']')
	}
	return string(b)
}

// moves is everything that may happen.
func moves() (all []move) {
	for kind := wait; kind <= serve; kind++ {
		for who := range 2 {
			if kind != jump || who == 0 {
				all = append(all, move{kind, who})
			}
		}
	}
	return all
}

// explore drives subjects through every order of moves up to a depth, leaving out
// what leads to a state that was seen, and returns the states and the first fault.
func explore(make func() subject, depth int) (states int, path []move, wrong string) {
	seen := map[string]bool{}
	paths := [][]move{nil}
	for range depth {
		var next [][]move
		for _, path := range paths {
			for _, m := range moves() {
				w := &world{s: make(), clock: time.Hour, last: -1}
				w.s.Due(hold.Instant{Mono: w.clock, Boot: w.clock, Wall: w.clock}) // the first of all always sees a jump
				for _, old := range path {
					w.do(old)
				}
				if !w.do(m) {
					continue
				}
				longer := append(slices.Clone(path), m)
				if w.check(); w.wrong != "" {
					return len(seen), longer, w.wrong
				}
				if key := w.state(); !seen[key] {
					seen[key] = true
					next = append(next, longer)
				}
			}
		}
		paths = next
	}
	return len(seen), nil, ""
}

func TestEveryQueuedLockHasATimer(t *testing.T) {
	depth := 8
	if os.Getenv("FENCELOCK_SLOW") != "" {
		depth = 12
	}
	states, path, wrong := explore(func() subject { return &schedule.Schedule[int]{} }, depth)
	if wrong != "" {
		t.Fatalf("after %v: %s", path, wrong)
	}
	t.Logf("%d states", states)
}
