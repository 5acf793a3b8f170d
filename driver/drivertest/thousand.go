package drivertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// thousand: one client holds a thousand locks, renews them in one call whose
// answers come in order, and releases them all.
func thousand(t *run) {
	const n = 1000
	c := t.client()
	gone := t.hold(c, t.request("gone"))
	gone.free()
	var leases []driver.Lease
	for i := range n {
		leases = append(leases, t.hold(c, t.request(fmt.Sprintf("one-of-many-%d", i))).lease())
		t.keepAll(c, leases)
	}
	errs := t.renewAll(c, slices.Insert(slices.Clone(leases), n/2, gone.lease()))
	if len(errs) != n+1 {
		t.Fatalf("Renew of %d leases gave %d answers", n+1, len(errs))
	}
	for i, err := range errs {
		if i == n/2 {
			t.notHeld(err, "renewing a released lease among others")
		} else if err != nil {
			t.Errorf("renewing lease %d: %v", i, err)
		}
	}
	for i, l := range leases {
		t.keepAll(c, leases[i:])
		if err := t.release(c, l); err != nil {
			t.Fatalf("releasing lease %d: %v", i, err)
		}
	}
}

func (t *run) renewAll(c Client, leases []driver.Lease) []error {
	t.Helper()
	return within(t, "Renew", func(ctx context.Context) []error { return c.Renew(ctx, leases) })
}

// keepAll renews at every hundredth of many leases: a slow engine takes longer for
// all of them than a lease lasts.
func (t *run) keepAll(c Client, leases []driver.Lease) {
	t.Helper()
	if len(leases)%100 != 0 {
		return
	}
	for i, err := range t.renewAll(c, leases) {
		if err != nil {
			t.Fatalf("renewing lease %d of %d: %v", i, len(leases), err)
		}
	}
}
