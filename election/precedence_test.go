package election

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// A leader resigns to a candidate that has failed before only when the other candidates, which may
// have noticed the failure later, prefer it again, too. Otherwise one of them would lead in between.
func TestOthersGiveWayToWhomTheLeaderResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const settle, ttl = 30 * time.Second, 10 * time.Second
		candidate := func(host string, rank int) driver.Identity {
			return driver.Identity{Host: host, Note: writeNote("", rank), Kind: fencelock.KindElection}
		}
		best, second, third := candidate("a", 0), candidate("b", 1), candidate("c", 2)
		waits := func(owner string, id driver.Identity) fencelock.Waiter {
			return fencelock.Waiter{Owner: owner, Identity: id}
		}
		status := func(owner string, id driver.Identity, waiters ...fencelock.Waiter) fencelock.Status {
			return fencelock.Status{Holders: []fencelock.Holder{{Owner: owner, Identity: id}}, Waiters: waiters}
		}
		leader, other := newPrecedence(settle, ttl), newPrecedence(settle, ttl)
		before := status("0", third)
		failing := status("1", best, waits("2", second), waits("3", third))
		leads := status("2", second, waits("3", third), waits("4", best))
		for _, p := range []*precedence{leader, other} {
			p.look(before, "", settle)
			p.look(failing, "", settle)
		}
		time.Sleep(time.Second) // the best one fails
		leader.look(leads, "2", 0)
		time.Sleep(leader.pause() - time.Millisecond)
		other.look(leads, "", settle)
		for begun := time.Now(); leader.look(leads, "2", settle).better == nil; {
			if time.Since(begun) > time.Hour {
				t.Fatal("the leader does not resign")
			}
			time.Sleep(10 * time.Millisecond)
			other.look(leads, "", settle)
		}
		f := other.look(status("3", third, waits("4", best), waits("5", second)), "3", 0)
		if f.better == nil || f.better.host != best.Host {
			t.Errorf("the leader has resigned, and the next one gives way to %+v", f.better)
		}
	})
}
