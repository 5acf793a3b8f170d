package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// tokenCases are about fencing tokens and floors.
var tokenCases = []Case{
	newCase("token-increasing", anyEngine, tokenIncreasing),
	newCase("token-constant", anyEngine, tokenConstant),
	newCase("floor", anyEngine, floor),
}

// tokenIncreasing: every later acquisition of a name has a greater token, across release, death,
// expiry, break and a restart of the engine.
//
// It fails an engine that counts in memory, depends on a clock alone, or restarts when nobody holds
// the name.
func tokenIncreasing(t *run) {
	cs := t.clients(4)
	brief := t.shortLease("counted")
	last := t.hold(cs[0], t.request("counted"))
	rises := func(c Client, req driver.Request, after string) {
		t.Helper()
		h := t.take(t.ttl+t.traits.MaxTTL+t.patience, c, req)
		if h.Token <= last.Token {
			t.Fatalf("token %d came after token %d across %s", h.Token, last.Token, after)
		}
		last = h
	}
	for _, c := range cs {
		last.free()
		rises(c, brief, "a release")
	}
	if t.traits.Leased {
		t.waitExpiry()
		rises(cs[0], t.request("counted"), "an expiry") // of a lease that the break meets
	}
	if b, ok := as[driver.Breaker](cs[1]); ok {
		breakName(t, b, "counted")
		rises(cs[2], brief, "a break")
	}
	last.free()
	t.world.Restart(t.TB)
	rises(cs[3], brief, "a restart of the engine after a release")
	t.world.Restart(t.TB)
	last.release() // the acquisition may not have survived
	rises(cs[3], brief, "a restart of the engine under a holder")
	cs[3].Kill(t.TB)
	rises(cs[0], brief, "the death of its holder")
}

// tokenConstant: a renewal does not change the token or anything else that identifies the
// acquisition.
//
// It fails an engine that issues a token for each renewal: the guarded resource would reject the
// holder.
func tokenConstant(t *run) {
	c, other := t.client(), t.client()
	h := t.hold(c, t.shared("steady"))
	for range 3 {
		time.Sleep(t.tick())
		h.stands("under its first token")
		if s := t.view(other).look("steady"); s != nil && (len(s.Holders) != 1 || s.Holders[0].Token != h.Token) {
			t.Fatalf("after a renewal of token %d the engine lists %+v", h.Token, s.Holders)
		}
		beside := t.hold(other, t.shared("steady"))
		if beside.Floor != h.Token {
			t.Fatalf("after a renewal of token %d the floor is %d", h.Token, beside.Floor)
		}
		beside.free()
	}
	h.free()
}

// floor: a grant has the lowest token among the current holders.
//
// It fails an engine that returns a holder's own token as the floor: one of two shared holders
// would be rejected.
func floor(t *run) {
	c, other := t.client(), t.client()
	alone := t.hold(c, t.request("alone"))
	if alone.Floor != alone.Token {
		t.Errorf("an exclusive grant has token %d and floor %d", alone.Token, alone.Floor)
	}
	oldest := t.hold(c, t.shared("together"))
	expectFloor(oldest, oldest)
	second := t.hold(other, t.shared("together"))
	expectFloor(second, oldest)
	expectFloor(t.hold(c, t.shared("together")), oldest)
	oldest.free()
	var fourth *held
	t.eventually(t.patience, "a floor without the oldest holder, which has released", func() bool {
		// One of several nodes may not have executed the release yet.
		fourth = t.hold(other, t.shared("together"))
		if fourth.Floor == oldest.Token {
			fourth.free()
			return false
		}
		return true
	})
	expectFloor(fourth, second)
	if fourth.Token <= second.Token || second.Token <= oldest.Token {
		t.Errorf("shared tokens do not rise: %d, %d, ..., %d", oldest.Token, second.Token, fourth.Token)
	}
}

func expectFloor(h, oldest *held) {
	h.t.Helper()
	if h.Floor != oldest.Token {
		h.t.Errorf("token %d has floor %d, the oldest holder has token %d", h.Token, h.Floor, oldest.Token)
	}
}
