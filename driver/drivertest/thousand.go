package drivertest

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock/driver"
)

// thousand: one client holds a thousand locks, renews them in one call whose
// answers come in order, and releases them all.
func thousand(t *sitting) {
	const n = 1000
	c := t.client()
	gone := t.hold(c, t.request("gone"))
	gone.free()
	leases := make([]driver.Lease, 0, n+1)
	for i := range n {
		if i == n/2 {
			leases = append(leases, gone.lease())
		}
		leases = append(leases, t.hold(c, t.request(fmt.Sprintf("one-of-many-%d", i))).lease())
	}
	errs := within(t, "Renew", func(ctx context.Context) []error { return c.Renew(ctx, leases) })
	if len(errs) != len(leases) {
		t.Fatalf("Renew of %d leases gave %d answers", len(leases), len(errs))
	}
	for i, l := range leases {
		if l.Owner == gone.Owner {
			t.notHeld(errs[i], "renewing a released lease among others")
			continue
		}
		if errs[i] != nil {
			t.Errorf("renewing lease %d: %v", i, errs[i])
		}
		if err := t.release(c, l); err != nil {
			t.Fatalf("releasing lease %d: %v", i, err)
		}
	}
}
