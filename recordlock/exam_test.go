package recordlock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

// TestExam runs the conformance suite on records in memory, in bubbles: on records that report
// changes, on records that must be polled, and on records without a clock.
func TestExam(t *testing.T) {
	for name, limit := range map[string]func(driver.Records) driver.Records{
		"reported": func(r driver.Records) driver.Records { return r },
		"polled":   func(r driver.Records) driver.Records { return polled{r} },
		"no clock": func(r driver.Records) driver.Records { return noClock{r} },
	} {
		t.Run(name, func(t *testing.T) {
			suite := drivertest.Suite{World: func(testing.TB) drivertest.World { return world{memlock.New(nil), limit} }, Bubble: true}
			if name == "no clock" {
				suite.Known = map[string]string{
					"renew-expired": "a process without a past waits for a TTL until it takes over",
					"adopt-ended":   "a process without a past does not know that a lease has expired",
				}
			}
			drivertest.Run(t, suite)
		})
	}
}

// hourly polls less often than usual, since the leases of the suite last an hour.
var hourly = &recordlock.Config{MaxPoll: 10 * time.Second}

// polled are records that do not report changes.
type polled struct{ driver.Records }

// world is records in memory.
type world struct {
	store *memlock.Engine
	limit func(driver.Records) driver.Records
}

func (w world) Client(t testing.TB) drivertest.Client {
	store := w.store.Client()
	e := recordlock.New(w.limit(store.Records()), hourly)
	t.Cleanup(func() {
		store.Kill()
		_ = e.Close()
	})
	return process{e, store}
}

func (w world) Restart(testing.TB) { w.store.Restart() }
func (w world) Cut(testing.TB)     { w.store.Hang() }
func (w world) Mend(testing.TB)    { w.store.Resume() }

// process is an engine whose connection to the store can be frozen or cut.
type process struct {
	*recordlock.Engine
	store *memlock.Engine
}

func (p process) Freeze(testing.TB) { p.store.Freeze() }
func (p process) Thaw(testing.TB)   { p.store.Thaw() }
func (p process) Kill(testing.TB) {
	p.store.Kill()
	_ = p.Close()
}
