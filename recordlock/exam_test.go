package recordlock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

// TestExam runs the conformance suite on records in memory, in bubbles.
func TestExam(t *testing.T) {
	drivertest.Run(t, drivertest.Suite{
		World:  func(testing.TB) drivertest.World { return world{memlock.New(nil)} },
		Bubble: true,
	})
}

// hourly polls less often than usual, since the leases of the suite last an hour.
var hourly = &recordlock.Config{MaxPoll: 10 * time.Second}

// world is records in memory.
type world struct{ store *memlock.Engine }

func (w world) Client(t testing.TB) drivertest.Client { return newProcess(t, w.store, hourly) }
func (w world) Restart(testing.TB)                    { w.store.Restart() }
func (w world) Cut(testing.TB)                        { w.store.Hang() }
func (w world) Mend(testing.TB)                       { w.store.Resume() }

// process is an engine whose connection to the store can be frozen or cut.
type process struct {
	*recordlock.Engine
	store *memlock.Engine
}

func newProcess(t testing.TB, store *memlock.Engine, cfg *recordlock.Config) process {
	store = store.Client()
	e := recordlock.New(store.Records(), cfg)
	t.Cleanup(func() {
		store.Kill()
		_ = e.Close()
	})
	return process{e, store}
}

func (p process) Freeze(testing.TB) { p.store.Freeze() }
func (p process) Thaw(testing.TB)   { p.store.Thaw() }
func (p process) Kill(testing.TB) {
	p.store.Kill()
	_ = p.Close()
}
