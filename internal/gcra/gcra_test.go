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
			got, ahead := s.Take(now, events*interval, model.burst*interval, events*interval)
			ok := got > 0
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

// TestFewer: a take of fewer than it asks for is granted what takes of one each would be, and
// a take of nothing changes nothing.
func TestFewer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := rapid.Int64Range(1, 5000).Draw(t, "interval")
		burst := rapid.Int64Range(1, 8).Draw(t, "burst")
		var s, ones gcra.State
		now := rapid.Int64Range(0, 1<<51).Draw(t, "now")
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += rapid.Int64Range(-interval, 3*interval).Draw(t, "pause")
			events := rapid.Int64Range(1, burst).Draw(t, "events")
			want := int64(0)
			for range events {
				got, _ := ones.Take(now, interval, burst*interval, interval)
				want += got
			}
			got, ahead := s.Take(now, events*interval, burst*interval, interval)
			before := s
			if none, look := s.Take(now, 0, burst*interval, 0); got != want || s != ones || ahead != s.At(now) || s != before || none != 0 || look != ahead {
				t.Fatalf("%d events at %d: %d, %d ahead, %+v; want %d, %+v; a look: %d, %d ahead", events, now, got, ahead, s, want, ones, none, look)
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
			got, ahead := s.Take(now, events*interval, burst*interval+wait, events*interval)
			if got == 0 {
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
		s.Take(now, 10, 50, 10)
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
		s.Take(now, 30, 50, 30)
		now -= hour
		if got, _ := s.Take(now, cost, 50, cost); (got > 0) != (cost == 10) {
			t.Errorf("cost %d: granted %d right after the clock was set back", cost, got)
		}
		if ahead := s.At(now + 40); ahead != 0 {
			t.Errorf("cost %d: still %d ahead 40 us after the clock was set back", cost, ahead)
		}
		now += 2 * hour
		if got, ahead := s.Take(now, 50, 50, 50); got != 50 || ahead != 50 {
			t.Errorf("a burst after the clock was set forward: %d, %d ahead", got, ahead)
		}
		if got, _ := s.Take(now, 1, 50, 1); got > 0 {
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
		if got, ahead := s.Take(c.now, c.cost, c.most, c.cost); ahead != c.ahead || (got > 0) != c.ok {
			t.Errorf("%+v: %d ahead, granted %d", c, ahead, got)
		}
	}
}

// TestTable: keys are apart, and idle ones are forgotten.
func TestTable(t *testing.T) {
	var table gcra.Table
	for i := range int64(100_000) {
		key := fmt.Sprint(i)
		if got, _ := table.Take(key, i, 100, 100, 100); got != 100 {
			t.Fatalf("the first of %s was refused", key)
		}
		if got, ahead := table.Take(key, i, 1, 100, 1); got > 0 || ahead != 100 {
			t.Fatalf("one too many of %s: %d, %d ahead", key, got, ahead)
		}
		if n := table.Len(); n > 1100 {
			t.Fatalf("%d keys are remembered, of which 100 are in use", n)
		}
	}
	table.Return("99999", 100, gcra.State{Last: 99999, Ahead: 100})
	if got, _ := table.Take("99999", 99999, 100, 100, 100); got == 0 {
		t.Error("what was given back cannot be taken")
	}
	table.Return("unknown", 1, gcra.State{Ahead: 1})
	if got, _ := table.Take("refused", 0, 2, 1, 2); got > 0 || table.Len() > 1100 {
		t.Error("more than a burst was granted")
	}
	table.Reset("unknown")
	table.Reset("99999")
	if got, _ := table.Take("99999", 99999, 100, 100, 100); got == 0 {
		t.Error("a burst cannot be taken after a reset")
	}
}
