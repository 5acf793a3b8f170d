package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// recordApartCases are about records and everything beside them.
var recordApartCases = []Case{
	newCase("record-apart", anyEngine, recordApart),
	newCase("record-input", anyEngine, recordInput),
	newCase("record-outage", anyEngine, recordOutage),
	newCase("record-lasts", anyEngine, recordLasts),
	newCase("record-clock", anyEngine, recordClock),
}

// recordApart: a lock and a record of the same name do not affect each other.
//
// It fails an engine that stores locks and records under the same key.
func recordApart(t *run) {
	rs := recordsOf(t, 1)
	c := t.client()
	version := rs[0].put("both", "value", "", 0)
	h := t.hold(c, t.request("both"))
	rs[0].shows("both", "value", version, "while a lock of its name is held")
	version = rs[0].put("both", "value", version, 0)
	h.stands("whose name is the key of a record that changed")
	h.free()
	rs[0].shows("both", "value", version, "after a lock of its name was released")
	rs[0].put("record only", "value", "", 0)
	if l, ok := as[driver.Lister](c); ok {
		list, err := l.List(t.ctx, driver.Query{Prefix: "record", Scan: true})
		if len(list) > 0 || err != nil && !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("a record is listed among the locks: %+v, %v", list, err)
		}
	}
	t.hold(c, t.request("lock only")).free()
	rs[0].lists("", []string{"both", "record only"})
}

// recordInput: invalid arguments are ErrInvalid, an ended context returns its own error, and
// neither changes anything.
//
// It fails an engine that writes before it checks.
func recordInput(t *run) {
	rs := recordsOf(t, 1)
	r := rs[0]
	for _, key := range []string{"", strings.Repeat("n", 513), "a\x00b", "a\xff"} {
		if _, err := r.read(key); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Get(%.10q): got %v, want ErrInvalid", key, err)
		}
		if _, err := r.swap(key, nil, "", 0); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Swap(%.10q): got %v, want ErrInvalid", key, err)
		}
	}
	for _, ttl := range []time.Duration{-1, driver.MaxDuration + 1} {
		if _, err := r.swap("a", nil, "", ttl); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Swap with a TTL of %v: got %v, want ErrInvalid", ttl, err)
		}
	}
	if _, err := r.swap("a", make([]byte, r.most+1), "", 0); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Swap of a value that is too long: got %v, want ErrInvalid", err)
	}
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	for name, call := range r.calls("a") {
		if err := within(t, name, func(context.Context) error { return call(ctx) }); !errors.Is(err, ctx.Err()) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s with a context that has ended: got %v, want %v and nothing else", name, err, ctx.Err())
		}
	}
	r.lists("", nil)
}

// calls returns one call of each method that the records have.
func (r records) calls(key string) map[string]func(context.Context) error {
	calls := map[string]func(context.Context) error{
		"Get":   func(ctx context.Context) error { _, err := r.records.Get(ctx, key); return err },
		"Swap":  func(ctx context.Context) error { _, err := r.records.Swap(ctx, key, []byte("new"), "", 0); return err },
		"List":  func(ctx context.Context) error { _, err := r.records.List(ctx, key); return err },
		"Clock": func(ctx context.Context) error { _, _, err := r.records.Clock(ctx); return err },
	}
	if !r.hasClock() {
		delete(calls, "Clock")
	}
	return calls
}

// hasClock reports whether the records have a clock. It asks them without waiting for an answer.
func (r records) hasClock() bool {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	_, _, err := r.records.Clock(ctx)
	return !errors.Is(err, driver.ErrUnsupported)
}

// clockWidth returns how inexact the clock of the records of a client is. It is 0 if there is none.
func (t *run) clockWidth(c Client) time.Duration {
	keeper, ok := as[driver.RecordKeeper](c)
	if !ok {
		return 0
	}
	r := records{t, keeper.Records()}
	if _, err := r.read("nothing"); err != nil || !r.hasClock() {
		return 0
	}
	earliest, latest := r.clockBounds()
	return latest.Sub(earliest)
}

// recordOutage: calls to an unresponsive engine return ErrUnavailable when their time is up. A swap
// with an unknown outcome has either succeeded or changed nothing.
//
// It fails an engine that reports a conflict for a swap whose answer was lost, although it may have
// succeeded.
func recordOutage(t *run) {
	t.needsCutter()
	rs := recordsOf(t, 1)
	t.silence()
	calls := rs[0].calls("a")
	answers := make(chan error, len(calls))
	for name, call := range calls {
		t.calls.Go(func() { answers <- fmt.Errorf("%s: %w", name, forAWhile(t.ctx, t.patience, call)) }) // ends with its context
	}
	for range calls {
		err := within(t, "a call whose context ends", func(context.Context) error { return <-answers })
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) {
			t.Errorf("an engine that is silent: got %v, want ErrUnavailable", err)
		}
	}
	t.mend()
	var rec driver.Record
	t.eventually(t.patience, "the record is read again", func() (ok bool) {
		var err error
		rec, err = rs[0].read("a")
		return err == nil
	})
	if (rec.Version == "") != (string(rec.Value) == "") || rec.Version != "" && string(rec.Value) != "new" {
		t.Errorf("after a swap of unknown outcome there is %q in version %q", rec.Value, rec.Version)
	}
}

// recordLasts: a restart of the engine removes no record and does not lead to a version being
// reused.
//
// It fails an engine that keeps records in memory only, or counts versions from the start of the
// server.
func recordLasts(t *run) {
	rs := recordsOf(t, 1)
	first := rs[0].put("lasting", "one", "", 0)
	version := rs[0].put("lasting", "two", first, 100*t.patience)
	t.world.Restart(t.TB)
	after := recordsOf(t, 1)
	var rec driver.Record
	t.eventually(t.patience, "a record is read after a restart", func() bool {
		var err error
		rec, err = after[0].read("lasting")
		return err == nil
	})
	if string(rec.Value) != "two" || rec.Version != version {
		t.Fatalf("after a restart the record is %q in version %q, want %q in version %q", rec.Value, rec.Version, "two", version)
	}
	after[0].conflict("lasting", first, "that is old, after a restart")
	if next := after[0].put("lasting", "three", version, 0); next == first {
		t.Errorf("a version was reused after a restart: %q", next)
	}
}

// recordClock: the records have one clock, and all clients see it advance.
//
// It fails an engine whose clock goes back or stands still, or whose bounds are reversed.
func recordClock(t *run) {
	rs := recordsOf(t, 2)
	if !rs[0].hasClock() {
		t.Skip("the Records have no clock")
	}
	begun, latest := rs[0].clockBounds()
	for i := range 6 {
		earliest, next := rs[i%2].clockBounds()
		if next.Before(begun) {
			t.Errorf("the clock showed %v at the earliest, and later %v at the latest to client %d", begun, next, i%2)
		}
		begun, latest = later(begun, earliest), later(latest, next)
	}
	t.eventually(t.patience, "the clock goes on", func() bool {
		earliest, _ := rs[1].clockBounds()
		return earliest.After(latest)
	})
}

// clockBounds returns the bounds of the clock.
func (r records) clockBounds() (earliest, latest time.Time) {
	r.Helper()
	err := within(r.run, "Clock", func(ctx context.Context) (err error) {
		earliest, latest, err = r.records.Clock(ctx)
		return err
	})
	if err != nil || latest.Before(earliest) || earliest.IsZero() {
		r.Fatalf("Clock: from %v to %v, %v", earliest, latest, err)
	}
	return earliest, latest
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
