package hold_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"pgregory.net/rapid"
)

var terms = hold.Terms{TTL: 30 * time.Second, Margin: 600 * time.Millisecond, Leased: true}

// at is the instant d after the origin on three clocks that agree.
func at(d time.Duration) hold.Instant { return hold.Instant{Mono: d, Boot: d, Wall: d} }

func tick(h *hold.Hold, now hold.Instant) hold.Action {
	return h.Step(hold.Event{Kind: hold.Tick}, now)
}

func TestRenewsAtAThird(t *testing.T) {
	h := hold.New(terms, at(0), terms.TTL)
	if act := tick(&h, at(0)); act.Renew || act.Wait != 10*time.Second {
		t.Fatalf("at once: %+v, want to wait 10s", act)
	}
	if act := tick(&h, at(10*time.Second)); !act.Renew || act.Lost {
		t.Fatalf("at a third: %+v, want a renewal", act)
	}
	if act := tick(&h, at(11*time.Second)); act.Renew {
		t.Fatalf("a renewal is under way: %+v", act)
	}
	act := h.Step(hold.Event{Kind: hold.Renewed, Sent: at(10 * time.Second)}, at(12*time.Second))
	if act.Renew || act.Wait != 8*time.Second {
		t.Fatalf("renewed: %+v, want to wait until a third after the send", act)
	}
}

func TestEndsAtTheDeadline(t *testing.T) {
	h := hold.New(terms, at(0), terms.TTL)
	tick(&h, at(10*time.Second))
	deadline := terms.TTL - terms.Margin
	refused := errors.New("refused")
	if act := h.Step(hold.Event{Kind: hold.Failed, Cause: refused}, at(11*time.Second)); act.Lost || act.Wait == 0 {
		t.Fatalf("a passing failure: %+v", act)
	}
	if act := tick(&h, at(deadline-1)); act.Lost {
		t.Fatal("lost before the deadline")
	}
	if act := tick(&h, at(deadline)); !act.Lost {
		t.Fatal("not lost at the deadline")
	}
	if !errors.Is(h.Cause(), hold.ErrDeadline) || !errors.Is(h.Cause(), refused) {
		t.Fatalf("cause %v names neither the deadline nor the failure", h.Cause())
	}
	if act := h.Step(hold.Event{Kind: hold.Renewed, Sent: at(deadline)}, at(deadline)); act != (hold.Action{}) {
		t.Fatalf("an ended hold acts: %+v", act)
	}
}

func TestAnyClockEndsIt(t *testing.T) {
	for name, now := range map[string]hold.Instant{
		"monotonic": {Mono: terms.TTL},
		"suspended": {Mono: time.Second, Boot: terms.TTL},
		"stepped":   {Mono: time.Second, Boot: time.Second, Wall: terms.TTL},
	} {
		t.Run(name, func(t *testing.T) {
			h := hold.New(terms, at(0), terms.TTL)
			if act := tick(&h, now); !act.Lost {
				t.Fatalf("%+v, want lost", act)
			}
		})
	}
	back := hold.Instant{Mono: terms.TTL, Boot: terms.TTL, Wall: -time.Hour}
	h := hold.New(terms, at(0), terms.TTL)
	if act := tick(&h, back); !act.Lost {
		t.Fatal("a wall clock that was set back kept the hold alive")
	}
}

func TestGraceEndsTheContextEarlier(t *testing.T) {
	early := terms
	early.Grace = 5 * time.Second
	h := hold.New(early, at(0), early.TTL)
	moment := early.TTL - early.Margin - early.Grace
	if got := h.Left(at(moment)); got != early.Grace {
		t.Fatalf("the deadline is %v away, want the grace %v", got, early.Grace)
	}
	if act := tick(&h, at(moment)); !act.Lost {
		t.Fatal("the context outlived the deadline less the grace")
	}
}

// A short lease, as a hand-over grants, is confirmed 50 ms after the request that it is counted from,
// and an attempt leaves time for another.
func TestShortLeaseIsConfirmedAtOnce(t *testing.T) {
	const use, soon = 2*time.Second - 600*time.Millisecond, 50 * time.Millisecond
	h := hold.New(terms, at(0), 2*time.Second)
	if !h.Fresh(at(0)) || h.Fresh(at(time.Second)) {
		t.Fatal("a short lease is fresh while half of it lies ahead, and no longer")
	}
	act := tick(&h, at(0))
	if act.Renew || act.Wait != soon {
		t.Fatalf("%+v, want to wait %v", act, soon)
	}
	act = tick(&h, at(soon))
	if !act.Renew || act.Limit != 2*time.Second/6 || act.Wait != use-soon {
		t.Fatalf("%+v, want a renewal of a sixth of the lease, and a look at the short deadline", act)
	}
	if act := h.Step(hold.Event{Kind: hold.Renewed, Sent: at(soon)}, at(soon)); act.Renew || act.Wait != 10*time.Second {
		t.Fatalf("%+v, want the whole lease after the renewal", act)
	}
	if act := tick(&h, at(soon+10*time.Second)); !act.Renew || act.Limit != terms.TTL/6 {
		t.Fatalf("%+v, want a renewal of a sixth of the whole lease", act)
	}
}

// However old a short lease is when it begins, and whatever margin and grace are
// taken from it, two attempts that nobody answers fit in before it ends.
func TestShortLeaseHasTimeForTwoAttempts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := terms
		terms.Margin = time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "margin"))
		terms.Grace = time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "grace"))
		ttl := time.Duration(rapid.Int64Range(int64(100*time.Millisecond), int64(10*time.Second)).Draw(t, "ttl"))
		now := time.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "age"))
		h := hold.New(terms, at(0), ttl)
		if !h.Fresh(at(now)) {
			return // it is confirmed first
		}
		ev, attempts := hold.Event{Kind: hold.Tick}, 0
		for {
			act := h.Step(ev, at(now))
			if h.Ended() {
				break
			}
			ev = hold.Event{Kind: hold.Tick}
			if act.Renew {
				attempts++
				now += act.Limit
				ev = hold.Event{Kind: hold.Failed, Cause: errors.New("silent"), Jitter: 1}
				continue
			}
			now += act.Wait + act.Slack
		}
		if attempts < 2 {
			t.Fatalf("%d attempts", attempts)
		}
	})
}

func TestGoneAndReleasedEndIt(t *testing.T) {
	h := hold.New(terms, at(0), terms.TTL)
	broken := errors.New("broken")
	if act := h.Step(hold.Event{Kind: hold.Gone, Cause: broken}, at(1)); !act.Lost || !errors.Is(h.Cause(), broken) {
		t.Fatalf("gone: %+v, %v", act, h.Cause())
	}
	h = hold.New(terms, at(0), terms.TTL)
	if act := h.Step(hold.Event{Kind: hold.Released}, at(1)); act.Lost || !h.Ended() || h.Cause() != nil {
		t.Fatalf("released: %+v, %v", act, h.Cause())
	}
	h = hold.New(terms, at(0), terms.TTL)
	if act := h.Step(hold.Event{Kind: hold.Released}, at(terms.TTL)); !act.Lost || !errors.Is(h.Cause(), hold.ErrDeadline) {
		t.Fatalf("released too late: %+v, %v", act, h.Cause())
	}
}

func TestWithoutLeaseOnlyTheEngineEndsIt(t *testing.T) {
	files := hold.Terms{TTL: 30 * time.Second}
	h := hold.New(files, at(0), files.TTL)
	if act := tick(&h, at(time.Hour)); act.Lost || !act.Renew {
		t.Fatalf("%+v, want a check and no loss", act)
	}
	if act := h.Step(hold.Event{Kind: hold.Failed, Cause: errors.New("disk")}, at(time.Hour)); act.Lost || act.Wait == 0 {
		t.Fatalf("%+v, want another check later", act)
	}
}

// TestNeverOutlivesTheLease drives holds through random renewals, failures and
// clocks, with a model engine that counts the lease from the latest possible
// moment, and checks the one property that matters.
func TestNeverOutlivesTheLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		h := hold.New(terms, at(0), terms.TTL)
		now, sent := time.Duration(0), time.Duration(0)
		leaseEnd := terms.TTL // the engine counts from the receipt, never earlier than the send
		inFlight := false
		for range 200 {
			ev := hold.Event{Kind: hold.Tick}
			if inFlight && rng.IntN(2) == 0 {
				inFlight = false
				ev = hold.Event{Kind: hold.Failed, Cause: errors.New("lost reply"), Jitter: rng.Float64()}
				if rng.IntN(3) > 0 && sent < leaseEnd {
					ev = hold.Event{Kind: hold.Renewed, Sent: at(sent)}
					leaseEnd = max(leaseEnd, sent+terms.TTL)
				}
			}
			act := h.Step(ev, at(now))
			if act.Renew {
				sent, inFlight = now, true
			}
			if !h.Ended() && now >= leaseEnd {
				t.Fatalf("held at %v although the lease ended at %v", now, leaseEnd)
			}
			if !h.Ended() && act.Wait <= 0 {
				t.Fatalf("a standing hold asks for no further look: %+v", act)
			}
			now += min(act.Wait+act.Slack, time.Duration(rng.Int64N(int64(12*time.Second))))
		}
	})
}

func TestJumped(t *testing.T) {
	const slack = 10 * time.Millisecond
	if at(time.Hour).Jumped(at(0), slack) {
		t.Error("clocks that agree are no jump")
	}
	if now := (hold.Instant{Mono: time.Second, Boot: time.Minute, Wall: time.Second}); !now.Jumped(at(0), slack) {
		t.Error("a suspend went unnoticed")
	}
}

// A stamp of a time to come proves nothing about the lease: it must be confirmed.
func TestAGrantFromTheFutureIsNotFresh(t *testing.T) {
	h := hold.New(terms, at(time.Hour), terms.TTL)
	if h.Fresh(at(time.Hour-1)) || !h.Fresh(at(time.Hour)) {
		t.Error("a grant is fresh from when its request was sent, and not before")
	}
}

// TestLimit: whatever the terms, a hold stops at its limit, a lease lasts for the grace after it,
// and a hold without a lease does not end.
func TestLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "most"))
		terms := terms
		terms.Leased = rapid.Bool().Draw(t, "leased")
		terms.Grace = time.Duration(rapid.Int64Range(0, int64(terms.TTL/2)).Draw(t, "grace"))
		h := hold.New(terms, at(0), terms.TTL)
		h.Limit(most, at(0))
		stopped := time.Duration(-1)
		ev, now := hold.Event{Kind: hold.Tick}, time.Duration(0)
		for now <= most+terms.Grace && !h.Ended() {
			act := h.Step(ev, at(now))
			if act.Lost {
				t.Fatalf("lost at %v", now)
			}
			if act.Stop {
				if stopped >= 0 {
					t.Fatal("stopped twice")
				}
				stopped = now
			}
			if ev = (hold.Event{Kind: hold.Tick}); act.Renew {
				ev = hold.Event{Kind: hold.Renewed, Sent: at(now)}
			} else if act.Wait > 0 {
				now += act.Wait // without the slack: no two locks share a batch here
			} else if !h.Ended() {
				t.Fatalf("nothing is due after %v: %+v", now, act)
			}
		}
		if stopped != most || !h.Stopping() {
			t.Fatalf("stopped at %v, want %v", stopped, most)
		}
		if h.Ended() != terms.Leased || h.Ended() && (now != most+terms.Grace || h.Cause() != nil) {
			t.Fatalf("ended: %v at %v, cause %v; want a release at %v", h.Ended(), now, h.Cause(), most+terms.Grace)
		}
	})
}

// TestLimitAfterAFreeze: a process that was frozen until its lease and its maximum were over has
// lost the lock if the lease ended first.
func TestLimitAfterAFreeze(t *testing.T) {
	for _, c := range []struct {
		most   time.Duration
		kind   hold.Kind
		leased bool
		stop   bool
	}{
		{time.Minute, hold.Tick, true, false},
		{time.Minute, hold.Look, true, false},
		{time.Minute, hold.Gone, true, false},
		{time.Minute, hold.Released, true, false},
		{time.Minute, hold.Tick, false, true},
		{20 * time.Second, hold.Tick, true, true},
		{terms.TTL - terms.Margin, hold.Tick, true, true},
		{terms.TTL - terms.Margin + 1, hold.Tick, true, false},
	} {
		terms := terms
		terms.Leased = c.leased
		h := hold.New(terms, at(0), terms.TTL)
		h.Limit(c.most, at(0))
		act := h.Step(hold.Event{Kind: c.kind, Cause: errors.New("gone")}, at(time.Hour))
		if act.Stop != c.stop || act.Lost != c.leased {
			t.Errorf("%+v: %+v", c, act)
		}
	}
	h := hold.New(terms, at(0), terms.TTL)
	h.Limit(time.Minute, at(0))
	if act := h.Step(hold.Event{Kind: hold.Renewed, Sent: at(time.Hour)}, at(time.Hour)); !act.Stop || act.Lost {
		t.Errorf("an acknowledged renewal proves that the lease lasted: %+v", act)
	}
}
