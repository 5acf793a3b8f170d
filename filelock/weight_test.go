package filelock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
)

// seats is a shared request with a limit.
func seats(name string, limit, weight int) driver.Request {
	return driver.Request{Name: name, Mode: driver.Shared, Limit: limit, Weight: weight, TTL: time.Minute}
}

func TestFrozenHeavyWaiterIsPassed(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	heavy, light := proc.Start(t, "files", dir), proc.Start(t, "files", dir)
	e := filelock.New(dir, nil)
	l := leaseOf("a", acquire(t, e, seats("a", 5, 3)))
	first := queueUpFor(t, t.Context(), heavy, seats("a", 5, 4))
	second := queueUpFor(t, t.Context(), light, seats("a", 5, 1))
	heavy.Freeze(t)
	g := await(t, second, "the light one behind the frozen one")
	release(t, light, leaseOf("a", g))
	heavy.Thaw(t)
	release(t, e, l)
	await(t, first, "the heavy one, which kept its place")
}

func TestTicketNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ limit, weight int }{
		"00000000000000000007.x.w.OWNER":    {},
		"00000000000000000007.s.h.OWNER":    {},
		"00000000000000000007.s3.w.OWNER":   {3, 1},
		"00000000000000000007.s5w2.h.OWNER": {5, 2},
	} {
		if limit, weight, ok := filelock.ParseTicket(name); !ok || limit != want.limit || weight != want.weight {
			t.Errorf("%s: limit %d, weight %d, %v", name, limit, weight, ok)
		}
	}
	for _, kind := range []string{"", "q", "x3", "s0", "s-3", "s03", "s+3", "sw2", "s5w", "s5w0", "s5w1", "s5w-2", "s5w2w2", "s5w02", "s99999999999999999999"} {
		if _, _, ok := filelock.ParseTicket("00000000000000000007." + kind + ".w.OWNER"); ok {
			t.Errorf("%q was taken for a ticket's", kind)
		}
	}
}
