package gcra_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/fencelock/fencelock/internal/gcra"
	"pgregory.net/rapid"
)

// naive is a rate as a list: an event is granted if no stretch of time that ends now
// holds more than a burst and what the rate gives in it. Times are in units of the cost
// of one event.
type naive struct {
	burst  int64
	starts []int64 // the microsecond of each granted unit
}

// fits reports whether so many events may be granted at a time.
func (n *naive) fits(now, events, interval int64) bool {
	for i, start := range n.starts {
		inside := int64(len(n.starts)-i) + events
		if inside*interval > n.burst*interval+now-start {
			return false
		}
	}
	return events <= n.burst
}

func (n *naive) grant(now, events int64) {
	for range events {
		n.starts = append(n.starts, now)
	}
}

// TestAgainstNaive: a clock that does not go back, and requests of all sizes, are granted
// and refused as by a list of all that was granted.
func TestAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := rapid.Int64Range(1, 5000).Draw(t, "interval")
		model := naive{burst: rapid.Int64Range(1, 8).Draw(t, "burst")}
		var s gcra.State
		now := rapid.Int64Range(0, 1<<51).Draw(t, "now")
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += rapid.Int64Range(0, 3*interval).Draw(t, "pause")
			events := rapid.Int64Range(1, model.burst+1).Draw(t, "events")
			want := model.fits(now, events, interval)
			before := s
			ahead, ok := s.Take(now, events*interval, model.burst*interval)
			switch {
			case ok != want:
				t.Fatalf("%d events at %d: granted = %v, want %v", events, now, ok, want)
			case ok:
				model.grant(now, events)
			case s != before:
				t.Fatalf("a refusal changed %v to %v", before, s)
			}
			if ahead != s.At(now) {
				t.Fatalf("Take said %d ahead, At %d", ahead, s.At(now))
			}
		}
	})
}

// TestReservations: what may wait is granted times at which it is within the burst, in any
// stretch of time, also when some give back what they do not use.
func TestReservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := rapid.Int64Range(1, 5000).Draw(t, "interval")
		burst := rapid.Int64Range(1, 8).Draw(t, "burst")
		wait := rapid.Int64Range(0, 30*interval).Draw(t, "wait")
		var s gcra.State
		var acts []int64 // one for each event
		now, last := int64(1), int64(0)
		var left gcra.State
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += rapid.Int64Range(0, 2*interval).Draw(t, "pause")
			if last > 0 && rapid.IntRange(0, 3).Draw(t, "give back") == 0 {
				s.Return(last*interval, left)
				acts, last = acts[:len(acts)-int(last)], 0
				continue
			}
			events := rapid.Int64Range(1, burst).Draw(t, "events")
			ahead, ok := s.Take(now, events*interval, burst*interval+wait)
			if !ok {
				continue
			}
			act := now + max(0, ahead-burst*interval)
			if act > now+wait {
				t.Fatalf("told to wait until %d at %d, with a patience of %d", act, now, wait)
			}
			for range events {
				acts = append(acts, act)
			}
			left, last = s, events
		}
		bounded(t, acts, burst, interval)
	})
}

// bounded fails the test if some stretch of time has more events than it may.
func bounded(t *rapid.T, acts []int64, burst, interval int64) {
	for i := range acts {
		for j := i; j < len(acts); j++ {
			if int64(j-i+1)*interval > burst*interval+acts[j]-acts[i] {
				t.Fatalf("%d events between %d and %d: burst %d, interval %d, all: %v", j-i+1, acts[i], acts[j], burst, interval, acts)
			}
		}
	}
}

// TestReturnAfterOthers: nothing comes back once somebody has taken after it, nor when it
// has come back before.
func TestReturnAfterOthers(t *testing.T) {
	var s gcra.State
	take := func(now int64) gcra.State {
		s.Take(now, 10, 50)
		return s
	}
	first, second := take(100), take(101)
	s.Return(10, first)
	if s != second {
		t.Errorf("%+v after a return that came too late, want %+v", s, second)
	}
	s.Return(10, second)
	if s.At(101) != first.At(101) {
		t.Errorf("%d ahead after a return, want %d", s.At(101), first.At(101))
	}
	third := take(102) // ends when the second did
	for _, left := range []gcra.State{second, {Last: third.Last}, {Ahead: third.Ahead}, {}} {
		if s.Return(10, left); s != third {
			t.Errorf("%+v after a return of %+v, want %+v", s, left, third)
		}
	}
}

// TestClockSteps: a clock that is set back delays nobody for longer than the rate does,
// whether the first to ask then is granted or refused; one that is set forward gives one burst.
func TestClockSteps(t *testing.T) {
	const hour = 3600 * 1e6
	for _, cost := range []int64{10, 40} { // granted, refused
		s := gcra.State{}
		now := int64(1e15)
		s.Take(now, 30, 50)
		now -= hour
		if _, ok := s.Take(now, cost, 50); ok != (cost == 10) {
			t.Errorf("cost %d: granted = %v right after the clock was set back", cost, ok)
		}
		if ahead := s.At(now + 40); ahead != 0 {
			t.Errorf("cost %d: still %d ahead 40 us after the clock was set back", cost, ahead)
		}
		now += 2 * hour
		if ahead, ok := s.Take(now, 50, 50); !ok || ahead != 50 {
			t.Errorf("a burst after the clock was set forward: %v, %d ahead", ok, ahead)
		}
		if _, ok := s.Take(now, 1, 50); ok {
			t.Error("more than a burst after the clock was set forward")
		}
	}
}

// TestExtremes: no times and costs overflow into a grant.
func TestExtremes(t *testing.T) {
	const year = 365 * 24 * 3600 * 1e6
	for _, c := range []struct {
		s               gcra.State
		now, cost, most int64
		ahead           int64
		ok              bool
	}{
		{gcra.State{}, math.MaxInt64, 1, 1, 1, true},
		{gcra.State{Last: math.MinInt64, Ahead: year}, math.MaxInt64, 1, 1, 1, true},
		{gcra.State{Last: math.MaxInt64, Ahead: year}, math.MinInt64, 1, year, year, false},
		{gcra.State{Last: 5, Ahead: year}, 5, math.MaxInt64, year, year, false},
		{gcra.State{Last: 5, Ahead: year}, 5, 1, math.MaxInt64, year + 1, true},
		{gcra.State{Last: 5, Ahead: math.MaxInt64}, 5, math.MaxInt64, math.MaxInt64, math.MaxInt64, false},
	} {
		s := c.s
		if ahead, ok := s.Take(c.now, c.cost, c.most); ahead != c.ahead || ok != c.ok {
			t.Errorf("%+v: %d, %v", c, ahead, ok)
		}
	}
}

// TestTable: keys are apart, and idle ones are forgotten.
func TestTable(t *testing.T) {
	var table gcra.Table
	for i := range int64(100_000) {
		key := fmt.Sprint(i)
		if _, ok := table.Take(key, i, 100, 100); !ok {
			t.Fatalf("the first of %s was refused", key)
		}
		if ahead, ok := table.Take(key, i, 1, 100); ok || ahead != 100 {
			t.Fatalf("one too many of %s: %v, %d ahead", key, ok, ahead)
		}
		if n := table.Len(); n > 1100 {
			t.Fatalf("%d keys are remembered, of which 100 are in use", n)
		}
	}
	table.Return("99999", 100, gcra.State{Last: 99999, Ahead: 100})
	if _, ok := table.Take("99999", 99999, 100, 100); !ok {
		t.Error("what was given back cannot be taken")
	}
	table.Return("unknown", 1, gcra.State{Ahead: 1})
	if _, ok := table.Take("refused", 0, 2, 1); ok || table.Len() > 1100 {
		t.Error("more than a burst was granted")
	}
}
