package drivertest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// rateCases are about rates.
var rateCases = []Case{
	newCase("rate", rates, rate),
	newCase("rate-refill", rates, rateRefill),
}

// rateInterval separates the events of cases during which nothing is regained.
const rateInterval = 24 * time.Hour

// rate runs the checks during which nothing is regained.
//
// It fails an engine that counts per client, charges for refused events, or returns events that
// others rely on, at once or when a return is repeated. It also fails one that charges for a query,
// does not grant fewer events than requested, or keeps a key that was reset.
func rate(t *run) {
	r := takers{t, t.clients(4)}
	r.burst()
	r.together()
	r.returned()
	r.fewer()
	r.looks()
	r.resets()
	r.badInput()
}

// takers use rates through several clients, which must be driver.RateLimiters.
type takers struct {
	*run
	cs []Client
}

type rateAnswer struct {
	taken driver.RateTaken
	err   error
}

// taking calls TakeRate of c.
func (t takers) taking(ctx context.Context, c Client, take driver.RateTake) (driver.RateTaken, error) {
	t.Helper()
	a := within(t.run, "TakeRate", func(limited context.Context) rateAnswer {
		if ctx == t.ctx {
			ctx = limited
		}
		taken, err := c.(driver.RateLimiter).TakeRate(ctx, take)
		return rateAnswer{taken, err}
	})
	return a.taken, a.err
}

// takes fails the case unless the engine grants (ok) or refuses.
func (t takers) takes(c Client, take driver.RateTake, ok bool, when string) driver.RateTaken {
	t.Helper()
	taken, err := t.taking(t.ctx, c, take)
	if err != nil {
		t.Fatalf("taking %v from %q %s: %v", take.Cost, take.Key, when, err)
	}
	if taken.OK != ok {
		t.Fatalf("taking %v from %q %s: granted = %v, want %v", take.Cost, take.Key, when, taken.OK, ok)
	}
	return taken
}

// returns returns what was taken.
func (t takers) returns(c Client, take driver.RateTake, taken driver.RateTaken) {
	t.Helper()
	err := within(t.run, "ReturnRate", func(ctx context.Context) error {
		return c.(driver.RateLimiter).ReturnRate(ctx, take, taken)
	})
	if err != nil {
		t.Fatalf("giving %v of %q back: %v", take.Cost, take.Key, err)
	}
}

// events returns a take of n events of a key with a burst of four.
func events(key string, n int) driver.RateTake {
	return driver.RateTake{Key: key, Cost: time.Duration(n) * rateInterval, Most: 4 * rateInterval}
}

// ends fails the case unless everything granted for a key since first amounts to n intervals, to
// the microsecond and by the engine's clock.
func (t takers) ends(first, taken driver.RateTaken, n int, when string) {
	t.Helper()
	if got, want := taken.Now.Add(taken.Ahead), first.Now.Add(time.Duration(n)*rateInterval); !got.Equal(want) {
		t.Errorf("%s: %v ahead at %v, which ends at %v, want %v", when, taken.Ahead, taken.Now, got, want)
	}
	if taken.Now.Before(first.Now) {
		t.Errorf("%s: the engine's clock went back from %v to %v", when, first.Now, taken.Now)
	}
}

// burst: all clients together get one burst of a key. A refusal costs nothing. Other keys, and the
// lock of the same name, are not affected.
func (t takers) burst() {
	t.Helper()
	cs := t.cs
	h := t.hold(cs[2], t.request("fast"))
	first := t.takes(cs[0], events("fast", 1), true, "at first")
	t.ends(first, first, 1, "the first take")
	t.ends(first, t.takes(cs[1], events("fast", 4), false, "when there are three left"), 1, "a refusal")
	t.ends(first, t.takes(cs[1], events("fast", 2), true, "when there are three left"), 3, "a take of two")
	t.ends(first, t.takes(cs[2], events("fast", 1), true, "when there is one left"), 4, "the last of a burst")
	for _, c := range cs {
		t.ends(first, t.takes(c, events("fast", 1), false, "when there is none left"), 4, "a refusal")
	}
	patient := events("fast", 1)
	patient.Most += 2 * rateInterval
	t.ends(first, t.takes(cs[0], patient, true, "with a wait of two intervals"), 5, "a reservation")
	t.ends(first, t.takes(cs[1], patient, true, "with a wait of two intervals"), 6, "a second reservation")
	t.ends(first, t.takes(cs[2], patient, false, "with a wait of two intervals"), 6, "a third reservation")
	t.takes(cs[0], events("fast too", 4), true, "beside a key that has none left")
	h.stands("while rates of its name were taken")
	h.free()
}

// rateRefill: used events are regained at the rate, neither earlier nor later, by the engine's
// clock.
//
// It fails an engine that counts in windows, which lets twice the rate through at their borders.
func rateRefill(t *run) {
	r, cs := takers{t, nil}, t.clients(2)
	const interval = 30 * time.Millisecond
	take := driver.RateTake{Key: "steady", Cost: interval, Most: 2 * interval}
	var granted []driver.RateTaken
	var refused driver.RateTaken // since the last grant
	for i := 0; len(granted) < 8; i++ {
		taken, err := r.taking(t.ctx, cs[i%2], take)
		if err != nil {
			t.Fatal(err)
		}
		if !taken.OK {
			if over := taken.Ahead + take.Cost - take.Most; over <= 0 || over > interval {
				t.Fatalf("a refusal that would be over in %v, with an interval of %v", over, interval)
			}
			refused = taken
			time.Sleep(interval / 8)
			continue
		}
		granted = append(granted, taken)
		for i, early := range granted {
			n, passed := len(granted)-i, taken.Now.Sub(early.Now)
			if time.Duration(n)*interval > take.Most+passed {
				t.Fatalf("%d within %v, with a burst of two and an interval of %v", n, passed, interval)
			}
		}
		if refused.Ahead > 0 {
			if wait := refused.Ahead + take.Cost - take.Most; taken.Now.Before(refused.Now.Add(wait)) {
				t.Fatalf("granted %v after a refusal that was to last %v", taken.Now.Sub(refused.Now), wait)
			}
		}
		refused = driver.RateTaken{}
	}
	last := granted[len(granted)-1]
	t.eventually(t.patience, "an unused rate is full again", func() bool {
		taken, err := r.taking(t.ctx, cs[0], driver.RateTake{Key: "steady", Cost: 2 * interval, Most: 2 * interval})
		if err != nil {
			t.Fatal(err)
		}
		if full := last.Now.Add(last.Ahead); !taken.OK && !taken.Now.Before(full) {
			t.Fatalf("%v ahead at %v, when all had come back at %v", taken.Ahead, taken.Now, full)
		}
		return taken.OK
	})
}

// together: concurrent clients get one burst together, not one each.
func (t takers) together() {
	t.Helper()
	cs := t.cs
	var granted atomic.Int32
	errs := make(chan error, len(cs))
	for _, c := range cs {
		t.calls.Go(func() { // ends when all its takes are answered
			var failed error
			for range 10 {
				taken, err := c.(driver.RateLimiter).TakeRate(t.ctx, events("crowded", 1))
				failed = errors.Join(failed, err)
				if taken.OK {
					granted.Add(1)
				}
			}
			errs <- failed
		})
	}
	for range cs {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if n := granted.Load(); n != 4 {
		t.Errorf("of 40 events at once %d were granted, want 4", n)
	}
}

// returned: events that were taken last and returned can be taken again. If there was another take
// after them, they cannot.
func (t takers) returned() {
	t.Helper()
	cs := t.cs
	first := t.takes(cs[0], events("changed", 1), true, "at first")
	two := t.takes(cs[0], events("changed", 2), true, "when there are three left")
	t.returns(cs[0], events("changed", 2), two)
	t.returns(cs[0], events("changed", 2), two)
	second := t.takes(cs[1], events("changed", 1), true, "after two were given back")
	t.ends(first, second, 2, "a take after two were given back, twice")
	third := t.takes(cs[1], events("changed", 1), true, "when there are two left")
	t.returns(cs[0], events("changed", 1), second)
	t.ends(first, t.takes(cs[0], events("changed", 1), true, "when there is one left"), 4, "a return after another take")
	t.returns(cs[1], events("changed", 1), third)
	t.ends(first, t.takes(cs[0], events("changed", 1), false, "when there is none left"), 4, "a return after another take")
	t.returns(cs[0], events("unknown", 1), first)
	t.takes(cs[0], events("unknown", 4), true, "after a return of a take that was not made")
	t.returnedAgain()
}

// returnedAgain: a return that is repeated, because its answer was lost, does not affect an equal
// take made meanwhile.
func (t takers) returnedAgain() {
	t.Helper()
	cs := t.cs
	first := t.takes(cs[0], events("again", 1), true, "at first")
	mine := t.takes(cs[0], events("again", 1), true, "when there are three left")
	t.returns(cs[0], events("again", 1), mine)
	time.Sleep(time.Millisecond)
	t.takes(cs[1], events("again", 1), true, "after one was given back")
	t.returns(cs[0], events("again", 1), mine)
	t.ends(first, t.takes(cs[1], events("again", 4), false, "when there are two left"), 2, "a repeated return")
}

// fewer returns a take of up to n events.
func fewer(key string, n int) driver.RateTake {
	take := events(key, n)
	take.Each = rateInterval
	return take
}

// fewer: a take of up to n events is granted as many as are left, and refused only if there are
// none. Only granted events can be returned. Concurrent takes get one burst together.
func (t takers) fewer() {
	t.Helper()
	cs := t.cs
	first := t.takes(cs[0], fewer("some", 3), true, "when there are four left")
	t.ends(first, first, 3, "a take of three")
	one := t.takes(cs[1], fewer("some", 3), true, "when there is one left")
	t.ends(first, one, 4, "what is left of three")
	none := t.takes(cs[2], fewer("some", 4), false, "when there is none left")
	t.ends(first, none, 4, "a refusal")
	if first.Cost != 3*rateInterval || one.Cost != rateInterval || none.Cost != 0 {
		t.Errorf("granted %v, %v and %v, want three intervals, one and none", first.Cost, one.Cost, none.Cost)
	}
	t.returns(cs[1], fewer("some", 3), one)
	t.ends(first, t.takes(cs[2], events("some", 2), false, "when there is one left"), 3, "a return of what was left")

	got := make(chan time.Duration)
	for _, c := range cs {
		for range 15 {
			t.calls.Go(func() { // ends when its take is answered and that is read
				taken, err := c.(driver.RateLimiter).TakeRate(t.ctx, fewer("some of a crowd", 3))
				if err != nil {
					t.Errorf("taking from %q: %v", "some of a crowd", err)
				}
				got <- taken.Cost
			})
		}
	}
	sum := time.Duration(0)
	for range 15 * len(cs) {
		sum += <-got
	}
	if sum != 4*rateInterval {
		t.Errorf("of three events each, asked for 60 times at once, %v was granted, want four intervals", sum)
	}
}

// looks: a take of nothing is refused and returns how far ahead the key is, whether or not it has
// been used.
func (t takers) looks() {
	t.Helper()
	cs := t.cs
	if look := t.takes(cs[0], events("seen", 0), false, "at first"); look.Ahead != 0 || look.Cost != 0 {
		t.Errorf("a query of an unused key: %+v", look)
	}
	first := t.takes(cs[1], events("seen", 3), true, "after a look")
	for _, c := range cs {
		t.ends(first, t.takes(c, events("seen", 0), false, "when there is one left"), 3, "a look")
	}
	last := t.takes(cs[2], events("seen", 1), true, "after looks")
	t.takes(cs[0], events("seen", 0), false, "when there is none left")
	t.returns(cs[2], events("seen", 1), last)
	t.ends(first, t.takes(cs[3], events("seen", 0), false, "after a return"), 3, "a return after a look")
}

// resetting resets a key.
func (t takers) resetting(ctx context.Context, c Client, key string) error {
	t.Helper()
	return within(t.run, "ResetRate", func(limited context.Context) error {
		if ctx == t.ctx {
			ctx = limited
		}
		return c.(driver.RateLimiter).ResetRate(ctx, key)
	})
}

// resets: after a reset a key has a full burst again, once, and what was taken before cannot be
// returned any more.
func (t takers) resets() {
	t.Helper()
	cs := t.cs
	reset := func(key string) {
		t.Helper()
		if err := t.resetting(t.ctx, cs[1], key); err != nil {
			t.Fatalf("a reset of %q: %v", key, err)
		}
	}
	beside := t.takes(cs[0], events("beside", 4), true, "at first")
	reset("fresh")
	t.takes(cs[0], events("fresh", 2), true, "after a reset of an unused key")
	old := t.takes(cs[0], events("fresh", 2), true, "when there are two left")
	reset("fresh")
	reset("fresh")
	time.Sleep(time.Millisecond)
	first := t.takes(cs[2], events("fresh", 4), true, "after a reset, twice")
	t.ends(first, first, 4, "a take after a reset")
	t.returns(cs[0], events("fresh", 2), old)
	t.ends(first, t.takes(cs[3], events("fresh", 1), false, "after a return of what was taken before a reset"), 4, "a return after a reset")
	t.ends(beside, t.takes(cs[0], events("beside", 1), false, "after a reset of another key"), 4, "a reset of another key")
}

// badInput: invalid takes are ErrInvalid, and an ended context returns its own error. Neither takes
// anything.
func (t takers) badInput() {
	t.Helper()
	c := t.cs[0]
	bad := []driver.RateTake{
		events("", 1), events("a\x00b", 1), events("a\xff", 1), events(strings.Repeat("k", 513), 1),
		events("odd", -1), events("odd", 5), fewer("odd", 5), fewer("odd", 0),
		{Key: "odd", Cost: time.Second, Most: time.Minute, Each: -1}, {Key: "odd", Cost: time.Second, Most: time.Minute, Each: 3 * time.Microsecond},
		{Key: "odd", Cost: time.Second, Most: time.Minute, Each: 500}, {Key: "odd", Cost: time.Second, Most: time.Minute, Each: time.Minute}, {Key: "odd"},
		{Key: "odd", Cost: time.Nanosecond, Most: time.Second}, {Key: "odd", Cost: time.Microsecond, Most: 1500},
		{Key: "odd", Cost: time.Second, Most: driver.MaxRateAhead + time.Microsecond},
	}
	for _, take := range bad {
		if _, err := t.taking(t.ctx, c, take); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("taking %.60v: got %v, want ErrInvalid", take, err)
		}
	}
	ended, cancel := context.WithCancel(t.ctx)
	cancel()
	_, err := t.taking(ended, c, events("odd", 1))
	itsOwn(ended, t.run, err, "odd")
	_, err = t.taking(ended, c, events("odd", 0))
	itsOwn(ended, t.run, err, "odd")
	if err := t.resetting(t.ctx, c, "a\x00b"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a reset of a key that is none: got %v, want ErrInvalid", err)
	}
	itsOwn(ended, t.run, t.resetting(ended, c, "odd"), "odd")
	const odd = 1234567 * time.Microsecond
	long := driver.RateTake{Key: strings.Repeat("k", 512), Cost: driver.MaxRateAhead - odd, Most: driver.MaxRateAhead}
	first := t.takes(c, long, true, "at first")
	long.Cost = time.Microsecond
	last := t.takes(c, long, true, "when a second of a year is left")
	if got, want := last.Now.Add(last.Ahead), first.Now.Add(driver.MaxRateAhead-odd+time.Microsecond); !got.Equal(want) {
		t.Errorf("almost a year ahead: the granted events end at %v, want %v", got, want)
	}
	t.takes(c, events("odd", 4), true, "after takes that make no sense")
}
