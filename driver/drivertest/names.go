package drivertest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// nameCases are about names and invalid requests.
var nameCases = []Case{
	newCase("names", anyEngine, names),
	newCase("bad-input", anyEngine, badInput),
}

// strange are names that an engine might fold, truncate or interpret. The long ones have 512 bytes
// and differ in the last one.
var strange = []string{
	"a", "A", "ä", "a\u0308", "Ä", "straße", "STRASSE", "日本語", "🔒", "\u202e", "\ufeff",
	" ", "a ", " a", "a b", "a\tb", "a\nb", "a\n", "a\r\nb", "\x01", "\x7f",
	".", "..", "...", "/", "a/", "/a", "a/b", "a//b", "../a", "a/../b", `a\b`, "~", "-a", "a.lock",
	"%", "%41", "a%2Fb", "%2e%2e", "{a}", "{a}b", "{b}a", "{}", "}{", "a:b", "lock:a", "fence:{lock:a}",
	"*", "?", "[a]", "a*", "'", `"`, "';--", "$1", "${a}", "CON", "nul", "0", "-1", "true",
	strings.Repeat("n", 511) + "a", strings.Repeat("n", 511) + "A", strings.Repeat("n", 511),
	strings.Repeat("ü", 256), strings.Repeat("/", 512), strings.Repeat("\n", 512),
}

// names: every valid name is a separate lock, and is listed exactly.
//
// It fails an engine that folds case, truncates long names, normalizes Unicode, or lets a name
// leave its key space.
func names(t *run) {
	c, other := t.client(), t.client()
	held := make([]*held, len(strange))
	renewed := time.Now()
	for i, name := range strange {
		held[i] = t.hold(c, t.request(name))
		renewed = keep(t, held[:i+1], renewed)
	}
	for _, name := range strange {
		renewed = keep(t, held, renewed)
		if facts := t.refused(other, t.request(name), "that is held"); facts.Name != name {
			t.Errorf("HeldError.Name is %q, want %q", facts.Name, name)
		}
		if s := t.view(other).look(name); s != nil && (s.Name != name || len(s.Holders) != 1) {
			t.Errorf("%q is listed as %+v", name, s)
		}
	}
	for i, h := range held {
		renewed = keep(t, held[i:], renewed)
		h.free()
		t.notHeld(h.release(), fmt.Sprintf("releasing %q twice", h.req.Name))
	}
	for _, name := range strange {
		t.hold(other, t.request(name)).free()
	}
}

// keep renews acquisitions that may have to outlast a slow machine, unless they were renewed
// recently. It returns when they were.
func keep(t *run, all []*held, renewed time.Time) time.Time {
	t.Helper()
	now := time.Now()
	if now.Sub(renewed) < t.long/6 {
		return renewed
	}
	for _, h := range all {
		h.stands("that is kept")
	}
	return now
}

// badInput: an invalid request is ErrInvalid, also with Wait, and nothing is held afterwards.
//
// It fails an engine that corrects requests, or checks them after it has written something.
func badInput(t *run) {
	c, other := t.client(), t.client()
	for what, req := range senseless(t) {
		for _, req.Wait = range []bool{false, true} {
			if _, err := t.attempt(c, req); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s (wait %v): got %v, want ErrInvalid", what, req.Wait, err)
			}
		}
	}
	t.hold(other, t.request("valid")).free()
}

// senseless returns requests that every engine must reject.
func senseless(t *run) map[string]driver.Request {
	bad := map[string]driver.Request{
		"an empty name":        t.request(""),
		"a name of 513 bytes":  t.request(strings.Repeat("n", 513)),
		"a name of 10 kB":      t.request(strings.Repeat("n", 10_000)),
		"a name with NUL":      t.request("a\x00b"),
		"a name in no UTF-8":   t.request("a\xff"),
		"half a rune":          t.request("日"[:2]),
		"a surrogate in UTF-8": t.request("\xed\xa0\x80"),
	}
	with := func(what string, change func(*driver.Request)) {
		req := t.request("valid")
		change(&req)
		bad[what] = req
	}
	with("no TTL", func(r *driver.Request) { r.TTL = 0 })
	with("a negative TTL", func(r *driver.Request) { r.TTL = -t.long })
	with("a TTL too short", func(r *driver.Request) { r.TTL = 1 })
	with("a negative limit", func(r *driver.Request) { r.Mode, r.Limit = driver.Shared, -1 })
	with("a limit without the shared mode", func(r *driver.Request) { r.Limit = 2 })
	with("a weight without a limit", func(r *driver.Request) { r.Mode, r.Weight = driver.Shared, 1 })
	with("a weight without the shared mode", func(r *driver.Request) { r.Weight = 1 })
	with("a negative weight", func(r *driver.Request) { r.Weight = -1 })
	with("a negative minimum hold", func(r *driver.Request) { r.MinHold = -1 })
	with("a minimum hold of a shared lock", func(r *driver.Request) { r.Mode, r.MinHold = driver.Shared, t.ttl })
	if t.traits.Limits {
		with("a limit too great", func(r *driver.Request) { r.Mode, r.Limit = driver.Shared, math.MaxInt })
		with("a limit and a weight too great", func(r *driver.Request) {
			r.Mode, r.Limit, r.Weight = driver.Shared, driver.MaxLimit+1, driver.MaxLimit+1
		})
		with("a minimum hold with a limit", func(r *driver.Request) { r.Mode, r.Limit, r.MinHold = driver.Shared, 3, t.ttl })
		with("a weight above the limit", func(r *driver.Request) { r.Mode, r.Limit, r.Weight = driver.Shared, 3, 4 })
	}
	if most := t.traits.MaxMinHold; most != 0 {
		with("a minimum hold too long", func(r *driver.Request) { r.MinHold = max(most, 0) + 1 })
	}
	if most := t.traits.MaxTTL; most > 0 {
		with("a TTL too long", func(r *driver.Request) { r.TTL = most + 1 })
	}
	return bad
}
