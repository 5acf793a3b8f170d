package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// recordCases are about records.
var recordCases = []Case{
	newCase("record-swap", anyEngine, recordSwap),
	newCase("record-race", anyEngine, recordRace),
	newCase("record-expiry", anyEngine, recordExpiry),
	newCase("record-list", anyEngine, recordList),
	newCase("record-await", anyEngine, recordAwait),
}

// records is driver.Records as one client sees them.
type records struct {
	*run
	records driver.Records
}

// recordsOf returns the records of n clients, and skips the case if the engine has none.
func recordsOf(t *run, n int) (all []records) {
	t.Helper()
	for _, c := range t.clients(n) {
		r, ok := as[driver.RecordKeeper](c)
		if !ok {
			t.Skip("the engine is no driver.RecordKeeper")
		}
		all = append(all, records{t, r.Records()})
	}
	if _, err := all[0].read("nothing"); errors.Is(err, driver.ErrUnsupported) {
		t.Skip("the Records answer driver.ErrUnsupported")
	}
	return all
}

// read returns the record of a key, or an error.
func (r records) read(key string) (driver.Record, error) {
	r.Helper()
	var rec driver.Record
	err := within(r.run, "Get", func(ctx context.Context) (err error) {
		rec, err = r.records.Get(ctx, key)
		return err
	})
	return rec, err
}

// get returns the record of a key, and fails the case on an error.
func (r records) get(key string) driver.Record {
	r.Helper()
	rec, err := r.read(key)
	if err != nil {
		r.Fatalf("Get(%.20q): %v", key, err)
	}
	if rec.Key != key {
		r.Errorf("Get(%.20q) gave the record of %.20q", key, rec.Key)
	}
	return rec
}

// swap replaces a record and returns the engine's answer.
func (r records) swap(key string, value []byte, version string, ttl time.Duration) (string, error) {
	r.Helper()
	var next string
	err := within(r.run, "Swap", func(ctx context.Context) (err error) {
		next, err = r.records.Swap(ctx, key, value, version, ttl)
		return err
	})
	return next, err
}

// put replaces a record, and fails the case on an error.
func (r records) put(key, value, version string, ttl time.Duration) string {
	r.Helper()
	next, err := r.swap(key, []byte(value), version, ttl)
	if err != nil {
		r.Fatalf("Swap(%.20q, %.20q) from version %q: %v", key, value, version, err)
	}
	if next == "" || next == version {
		r.Errorf("Swap(%.20q) from version %q gave version %q", key, version, next)
	}
	return next
}

// conflict fails the case unless a swap from a version is a conflict and changes nothing.
func (r records) conflict(key, version, when string) {
	r.Helper()
	before := r.get(key)
	if _, err := r.swap(key, []byte("late"), version, 0); !errors.Is(err, driver.ErrConflict) {
		r.Errorf("Swap(%.20q) from version %q %s: got %v, want ErrConflict", key, version, when, err)
	}
	r.shows(key, string(before.Value), before.Version, "after a conflict")
}

// shows fails the case unless the record of a key has this value and version.
func (r records) shows(key, value, version, when string) {
	r.Helper()
	if got := r.get(key); string(got.Value) != value || got.Version != version {
		r.Errorf("%.20q is %.20q in version %q %s, want %.20q in version %q", key, got.Value, got.Version, when, value, version)
	}
}

// recordSwap: a record changes only from the version that its writer has read, and every client
// sees the change at once.
//
// It fails an engine that compares values instead of versions, or reuses a version.
func recordSwap(t *run) {
	rs := recordsOf(t, 2)
	here, there := rs[0], rs[1]
	here.shows("a", "", "", "before anybody wrote it")
	first := here.put("a", "one", "", 0)
	there.shows("a", "one", first, "after another client wrote it")
	there.conflict("a", "", "though there is a record")
	there.conflict("a", "unknown", "that was never returned")
	second := there.put("a", "one", first, 0)
	here.conflict("a", first, "that is the one before")
	if third := here.put("a", "two", second, 0); third == first {
		t.Errorf("a version was reused: %q", third)
	}
	there.conflict("b", first, "of another key")
	here.shows("b", "", "", "after swaps of another key")
	recordValues(here, there)
}

// recordValues: a value may contain any bytes, and is copied: later changes of the caller's slices
// do not affect it.
func recordValues(here, there records) {
	here.Helper()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	version := ""
	for _, value := range []string{"", string(every), " \n", "\\x41", strings.Repeat("\x00", 100), strings.Repeat("big", here.most/3)} {
		version = here.put("bytes", value, version, 0)
		there.shows("bytes", value, version, "after another client wrote it")
	}
	own := []byte("as it was")
	version, err := here.swap("bytes", own, version, 0)
	if err != nil {
		here.Fatal(err)
	}
	copy(own, "changed")
	got := here.get("bytes")
	if copy(got.Value, "too"); !bytes.HasPrefix(got.Value, []byte("too")) {
		here.Errorf("the value of a record is %q", got.Value)
	}
	here.shows("bytes", "as it was", version, "after its bytes were written to by their owners")
}

// recordRace: of several concurrent swaps from one version, one succeeds.
//
// It fails an engine that reads, compares and writes in separate steps.
func recordRace(t *run) {
	rs := recordsOf(t, 3)
	const each = 5
	type count struct {
		unknown int
		err     error
	}
	done := make(chan count, len(rs))
	for _, r := range rs {
		t.calls.Go(func() { // ends when it has counted, or with the case
			unknown, err := r.count("sum", each)
			done <- count{unknown, err}
		})
	}
	unknown := 0
	for range rs {
		c := <-done
		if c.err != nil {
			t.Fatalf("counting: %v", c.err)
		}
		unknown += c.unknown
	}
	sum, err := strconv.Atoi(string(rs[0].get("sum").Value))
	if most := each * len(rs); err != nil || sum > most || sum < most-unknown {
		t.Errorf("%d clients each added 1 to a record %d times, and it is %d; the result of %d swaps is unknown", len(rs), each, sum, unknown)
	}
}

// count adds 1 to a record n times, and returns for how many of these it is unknown whether they
// succeeded.
func (r records) count(key string, n int) (unknown int, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, r.patience)
	defer cancel()
	for n > 0 {
		rec, err := r.records.Get(ctx, key)
		if err != nil {
			return unknown, err
		}
		sum, _ := strconv.Atoi(string(rec.Value)) // 0 if there is none
		switch _, err := r.records.Swap(ctx, key, []byte(strconv.Itoa(sum+1)), rec.Version, 0); {
		case err == nil:
			n--
		case errors.Is(err, driver.ErrUnavailable):
			n--
			unknown++
		case !errors.Is(err, driver.ErrConflict):
			return unknown, err
		default:
			time.Sleep(r.tick() / 50) // so that ctx ends, whatever the engine does
		}
	}
	return unknown, nil
}

// recordExpiry: a record exists until its TTL has passed and not longer. A record written after it
// has a version of its own. Each swap sets the TTL again.
//
// It fails an engine that keeps the TTL of the previous value, or restarts versions when a record
// has expired.
func recordExpiry(t *run) {
	rs := recordsOf(t, 2)
	here, there := rs[0], rs[1]
	ttl := min(t.ttl, 200*time.Millisecond)
	if t.bubble {
		ttl = t.ttl
	}
	kept, ttl := here.prolong("kept", ttl, 0)
	longer, ttl := here.prolong("longer", ttl, 100*t.patience)
	shorter := here.put("shorter", "long", "", 0)
	begun := time.Now()
	version := here.put("brief", "value", "", ttl)
	here.put("shorter", "short", shorter, ttl)
	for _, key := range []string{"brief", "shorter"} {
		t.eventually(ttl+t.patience, "a record is gone after its TTL", func() bool { return there.get(key).Version == "" })
		if after := time.Since(begun); after < ttl-t.slack() {
			t.Errorf("%q was gone %v after it was written with a TTL of %v", key, after, ttl)
		}
	}
	there.conflict("brief", version, "that has expired")
	if again := there.put("brief", "value", "", 0); again == version {
		t.Errorf("a version was reused after it expired: %q", again)
	}
	here.conflict("brief", version, "of the record that has expired")
	here.shows("kept", "long", kept, "after the TTL of the value before it")
	here.shows("longer", "long", longer, "after the TTL of the value before it")
}

// prolong writes a record that expires soon, and rewrites it before that with another TTL. It
// returns the version and the first TTL, which is longer on a slow machine.
func (r records) prolong(key string, soon, ttl time.Duration) (version string, after time.Duration) {
	r.Helper()
	for ; ; soon *= 2 {
		version := r.put(key, "short", r.get(key).Version, soon)
		next, err := r.swap(key, []byte("long"), version, ttl)
		if err == nil {
			return next, soon
		}
		if !errors.Is(err, driver.ErrConflict) || soon > r.patience {
			r.Fatalf("Swap(%q) with another TTL: %v", key, err)
		}
	}
}

// recordList: List returns the records whose keys have a prefix, in order. All names are valid
// keys.
//
// It fails an engine that takes the prefix for a pattern or an exact key, or does not return keys
// unchanged.
func recordList(t *run) {
	rs := recordsOf(t, 2)
	here, there := rs[0], rs[1]
	there.lists("", nil)
	versions := map[string]string{}
	for _, key := range strange {
		versions[key] = here.put(key, "of "+key, "", 0)
	}
	for _, key := range strange {
		there.shows(key, "of "+key, versions[key], "among many strange ones")
	}
	for _, prefix := range []string{"", "a", "a/", "*", "%", "A", "[a]", strings.Repeat("n", 511), "none of them",
		"\xc3", "a\xcc", "\xff", "\x00", "a\x00", strings.Repeat("n", 600)} { // the last few are not valid keys
		var want []string
		for _, key := range strange {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		there.lists(prefix, want)
	}
	for _, rec := range there.list("a b") {
		if string(rec.Value) != "of "+rec.Key || rec.Version != versions[rec.Key] {
			t.Errorf("%q is listed as %q in version %q", rec.Key, rec.Value, rec.Version)
		}
	}
}

// list calls List, and fails the case on an error.
func (r records) list(prefix string) []driver.Record {
	r.Helper()
	var list []driver.Record
	err := within(r.run, "List", func(ctx context.Context) (err error) {
		list, err = r.records.List(ctx, prefix)
		return err
	})
	if err != nil {
		r.Fatalf("List(%.20q): %v", prefix, err)
	}
	return list
}

// lists fails the case unless List returns exactly these keys.
func (r records) lists(prefix string, want []string) {
	r.Helper()
	var got []string
	for _, rec := range r.list(prefix) {
		got = append(got, rec.Key)
	}
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		r.Errorf("List(%.20q) shows %s, want %s", prefix, short(got), short(want))
	}
}

// short formats keys, abbreviating long ones.
func short(keys []string) string {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, " %.12q", k)
	}
	return fmt.Sprintf("%d:%s", len(keys), b.String())
}
