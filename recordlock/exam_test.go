package recordlock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

// TestExam runs the conformance suite, in bubbles, on records in memory that must be polled and have a
// clock.
func TestExam(t *testing.T) {
	drivertest.Run(t, suiteOf(func(r driver.Records) driver.Records { return polled{r} }))
	verdict.Is(t, "Records: the holder is killed", verdict.Safe)
	verdict.Is(t, "Records: a waiter dies or freezes", verdict.Safe)
	verdict.Is(t, "Records: the store restarts with its data", verdict.Safe)
}

// TestExamReported runs the suite on records that report changes.
func TestExamReported(t *testing.T) {
	drivertest.Run(t, suiteOf(func(r driver.Records) driver.Records { return r }))
}

// TestExamWithoutAClock runs the suite on records without a clock.
func TestExamWithoutAClock(t *testing.T) {
	suite := suiteOf(func(r driver.Records) driver.Records { return noClock{r} })
	suite.Known = map[string]string{
		"renew-expired": "a process without a past waits for a TTL until it takes over",
		"adopt-ended":   "a process without a past does not know that a lease has expired",
	}
	drivertest.Run(t, suite)
}

func suiteOf(limit func(driver.Records) driver.Records) drivertest.Suite {
	return drivertest.Suite{World: func(testing.TB) drivertest.World { return world{memlock.New(nil), limit} }, Bubble: true}
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
