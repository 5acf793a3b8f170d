package election

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

var best, second, third = candidate("a", 0), candidate("b", 1), candidate("c", 2)

func candidate(host string, rank int) driver.Identity {
	return driver.Identity{Host: host, Note: writeNote("", rank), Kind: fencelock.KindElection}
}

func waits(owner string, id driver.Identity) fencelock.Waiter {
	return fencelock.Waiter{Owner: owner, Identity: id}
}

func status(owner string, id driver.Identity, waiters ...fencelock.Waiter) fencelock.Status {
	return fencelock.Status{Holders: []fencelock.Holder{{Owner: owner, Identity: id}}, Waiters: waiters}
}

// A candidate to which a leader resigns has not failed if another one, which was in front of it, is
// granted the lock first and gives way to it as well.
func TestCandidateBehindOthersHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fourth := candidate("d", 3)
		p := newPrecedence(30*time.Second, 10*time.Second)
		f := p.look(status("1", third, waits("2", fourth), waits("3", second)), "1", 0)
		p.giveWay("1", f.better)
		p.look(status("2", fourth, waits("3", second), waits("4", third)), "", 0)
		p.look(status("3", second, waits("4", third), waits("5", fourth)), "", 0)
		time.Sleep(time.Second)
		p.look(status("6", best, waits("4", third), waits("5", fourth), waits("7", second)), "", 0)
		f = p.look(status("4", third, waits("5", fourth), waits("7", second)), "4", 0)
		if f.better == nil || f.better.host != second.Host {
			t.Fatalf("%+v is preferred", f.better)
		}
		p.giveWay("4", f.better)
		f = p.look(status("8", third, waits("5", fourth), waits("7", second)), "8", 0)
		if f.better != nil {
			t.Error("a candidate that has not taken the lock is preferred again")
		}
	})
}

// A leader resigns to a candidate that has failed before only when the other candidates, which may
// have noticed the failure later, prefer it again, too. Otherwise one of them would lead in between.
func TestOthersGiveWayToWhomTheLeaderResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const settle, ttl = 30 * time.Second, 10 * time.Second
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
