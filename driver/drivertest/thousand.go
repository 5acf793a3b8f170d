package drivertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// manyCases are about many locks of one client.
var manyCases = []Case{
	newCase("thousand", anyEngine, thousand),
}

// thousand: one client holds a thousand locks, renews them in one call that returns its results in
// order, and releases all of them.
//
// It fails an engine that returns results in another order, or only for some leases.
func thousand(t *run) {
	const n = 1000
	c := t.client()
	all := many{t, c}
	gone := t.hold(c, t.request("gone"))
	gone.free()
	var leases []driver.Lease
	for i := range n {
		leases = append(leases, t.hold(c, t.request(fmt.Sprintf("one-of-many-%d", i))).lease())
		all.keep(leases)
	}
	errs := all.renew(slices.Insert(slices.Clone(leases), n/2, gone.lease()))
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
		all.keep(leases[i:])
		if err := t.release(c, l); err != nil {
			t.Fatalf("releasing lease %d: %v", i, err)
		}
	}
}

// many is one client with many locks.
type many struct {
	*run
	client Client
}

func (t many) renew(leases []driver.Lease) []error {
	t.Helper()
	return within(t.run, "Renew", func(ctx context.Context) []error { return t.client.Renew(ctx, leases) })
}

// keep renews all leases whenever another hundred were acquired: on a slow engine, acquiring all of
// them takes longer than a lease lasts.
func (t many) keep(leases []driver.Lease) {
	t.Helper()
	if len(leases)%100 != 0 {
		return
	}
	for i, err := range t.renew(leases) {
		if err != nil {
			t.Fatalf("renewing lease %d of %d: %v", i, len(leases), err)
		}
	}
}
