package recordlock

import (
	"slices"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/explore"
)

// hunts are the bounds within which mutants are found. They need not be exhausted.
var hunts = map[string]explore.Bounds{
	"plain":       {Clients: 2, Acquires: 1},
	"again":       {Clients: 2, Acquires: 2},
	"rates":       {Clients: 2, Acquires: 1, Rates: explore.Drift},
	"delays":      {Clients: 2, Acquires: 1, Delays: 2},
	"time-outs":   {Clients: 2, Acquires: 2, Delays: 1, Timeouts: 2},
	"crash":       {Clients: 2, Acquires: 1, Crashes: 1, Fair: 7},
	"renews":      {Clients: 2, Acquires: 1, Renews: 2},
	"crash again": {Clients: 2, Acquires: 2, Crashes: 1, Fair: 7},
	"day":         {Clients: 2, Acquires: 2, Timeouts: 1, Pauses: 1},
}

// TestExploreHunt explores the bounds that a mutant names.
func TestExploreHunt(t *testing.T) { explore.HuntWithin(t, hunts, modelOf) }

// TestExploreMutants changes the decisions and the hold.
func TestExploreMutants(t *testing.T) {
	explore.Hunt(t, slices.Concat(explore.HoldMutants(".."), []explore.Mutant{
		explore.Change("a lease that is over is renewed", "job.go", "delays", "if h == nil || h.Token != l.Token {\n\t\t\treturn refused", "if h == nil {\n\t\t\treturn stored, nil\n\t\t}\n\t\tif h.Token != l.Token {\n\t\t\treturn refused"),
		explore.Change("anybody ends a holder", "job.go", "again", "case h != nil && h.Token == l.Token:\n\t\t\tst.remove(l.Owner)", "case h != nil || len(st.Holders) > 0:\n\t\t\tst.Holders = nil"),
		explore.Change("a token does not grow", "state.go", "again", "st.Last = max(st.Last+1, m.wall.UnixMicro())", "st.Last = max(st.Last, 1)"),
		explore.Change("a lease ends after a quarter", "state.go", "plain", "return left <= 0\n\t}\n\tdead", "return left <= micros(l.TTL)*3/4\n\t}\n\tdead"),
		explore.Change("a request fits beside a holder", "state.go", "plain", "if taken > 0 && (exclusive", "if false && (exclusive"),
		explore.Change("a dead holder stays", "state.go", "crash", "slices.DeleteFunc(st.Holders, dead), slices.DeleteFunc(st.Waiters, dead)", "st.Holders, slices.DeleteFunc(st.Waiters, dead)"),
		explore.Change("a dead waiter stays", "state.go", "crash again", "slices.DeleteFunc(st.Holders, dead), slices.DeleteFunc(st.Waiters, dead)", "slices.DeleteFunc(st.Holders, dead), st.Waiters"),
		explore.Change("a renewal does not begin the lease again", "lease.go", "renews", "if old, ok := s[id]; ok && old.beat == l.Beat {", "if old, ok := s[id]; ok {", "if seen, ok := s[id]; ok && seen.beat == l.Beat {", "if seen, ok := s[id]; ok {"),
		explore.Change("a renewal has the same beat", "lease.go", "renews", "l.Beat = max(l.Beat+1, m.wall.UnixMicro())", "l.Beat = max(l.Beat, 1)"),
		explore.Change("a lease is half as long", "lease.go", "plain", "micros(l.TTL + 2)", "micros(l.TTL) / 2"),
		explore.Change("a lease counts from before the answer", "step.go", "plain", "w.seen = w.seen.note(st, now)", "w.seen = w.seen.note(st, now.Add(-3*time.Second))"),
		explore.Change("a conflict counts as stored", "step.go", "plain", "case err == nil:\n\t\tw.beat", "case err == nil || errors.Is(err, driver.ErrConflict):\n\t\tw.beat"),
		explore.Change("what waits is granted", "step.go", "plain", "case waits, joins:\n\t\t\ta.queue(st)", "case joins:\n\t\t\ta.queue(st)\n\t\tcase waits:\n\t\t\ta.grant.Owner, a.grant.Token, a.grant.Sent = a.me.Owner, st.Last+1, time.Unix(1_700_000_000, 0)\n\t\t\tw.finish(j, nil)"),
		explore.Change("who finds an earlier attempt keeps its token", "acquire.go", "day", "	if closed || st.holder(a.me.Owner) != nil {", "	if h := st.holder(a.me.Owner); h != nil {\n\t\th.renew(m)\n\t\ta.grant = driver.Grant{Owner: h.Owner, Token: h.Token, Floor: h.Token, Sent: m.now, TTL: a.req.TTL}\n\t\treturn stored, nil\n\t}\n\tif closed || st.holder(a.me.Owner) != nil {"),
		explore.Change("a token counts however late it was stored", "step.go", "day", "m.age(now) > storeLimit", "m.age(now) > 10000*storeLimit"),
		explore.Change("the store's answer is not needed", "step.go", "time-outs", "case !errors.Is(err, driver.ErrConflict) && !final(err): // it may have been stored, or may still be\n", "case !errors.Is(err, driver.ErrConflict) && !final(err):\n\t\tw.settle(st)\n"),
	}))
}
