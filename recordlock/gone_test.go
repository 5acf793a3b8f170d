package recordlock_test

import (
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

// TestHolderGone measures on records in memory when the lock of a holder that is gone is granted to a
// waiter.
func TestHolderGone(t *testing.T) {
	for name, limit := range map[string]func(driver.Records) driver.Records{
		"polled":          func(r driver.Records) driver.Records { return polled{r} },
		"reports changes": func(r driver.Records) driver.Records { return r },
		"no clock":        func(r driver.Records) driver.Records { return noClock{r} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New(nil)
				examtest.Gone(t, func(t testing.TB) examtest.Link {
					client := store.Client()
					e := recordlock.New(limit(client.Records()), nil)
					t.Cleanup(func() {
						client.Kill()
						_ = e.Close()
					})
					return examtest.Link{Engine: e, Silence: client.Freeze, Kill: client.Kill}
				})
			})
		})
	}
}
