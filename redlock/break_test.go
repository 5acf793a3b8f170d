package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redlock"
)

// TestLateRequestOfABrokenHolder: a request that one node has not got yet belongs to a
// lock that is broken meanwhile. It may get that node, for a lease at most, and nothing
// else: the next holder has the others, and the broken one is told that it holds nothing.
func TestLateRequestOfABrokenHolder(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	proxies, addrs := behind(t, w)
	broken := open(t, addrs, redlock.Config{Nodes: w.addrs()})
	other := open(t, w.addrs(), redlock.Config{})
	warmUp(t, broken)
	held := proxies[2].HoldNext("lock:x")
	t.Cleanup(held.End)
	_, first := take(t, broken, "x", long)
	<-held.Caught()
	token, err := other.Break(t.Context(), "x", "stuck")
	if err != nil {
		t.Fatal(err)
	}
	held.Deliver()
	<-held.Answered()
	rejoined := strings.Contains(w[2].Do(t, "GET", "lock:x"), first.Owner)
	t.Logf("the late request has got its node: %v", rejoined) // not if the holder received the break before, and took it back
	next, l := take(t, other, "x", long)
	if next.Token <= token {
		t.Errorf("token %d after %d of the break", next.Token, token)
	}
	eventually(t, "the broken holder is told", func() bool {
		err := broken.Renew(context.Background(), []driver.Lease{first})[0]
		if err == nil {
			t.Fatal("the broken holder renews")
		}
		return errors.Is(err, driver.ErrNotHeld)
	})
	if err := other.Renew(context.Background(), []driver.Lease{l})[0]; err != nil {
		t.Errorf("the next holder renews: %v", err)
	}
	release(t, other, l)
}
