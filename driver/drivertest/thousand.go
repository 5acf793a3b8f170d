package drivertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// thousand: one client holds a thousand locks, renews them in one call whose
// answers come in order, and releases them all.
func thousand(t *sitting) {
	const n = 1000
	c := t.client()
	gone := t.hold(c, t.request("gone"))
	gone.free()
	var leases []driver.Lease
	for i := range n {
		leases = append(leases, t.hold(c, t.request(fmt.Sprintf("one-of-many-%d", i))).lease())
		if len(leases)%100 == 0 { // a slow engine takes longer for a thousand than a lease lasts
			for j, err := range renewAll(t, c, leases) {
				if err != nil {
					t.Fatalf("renewing lease %d of %d: %v", j, len(leases), err)
				}
			}
		}
	}
	leases = slices.Insert(leases, n/2, gone.lease())
	errs := renewAll(t, c, leases)
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

func renewAll(t *sitting, c Client, leases []driver.Lease) []error {
	t.Helper()
	return within(t, "Renew", func(ctx context.Context) []error { return c.Renew(ctx, leases) })
}
