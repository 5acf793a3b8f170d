package memlock_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/memlock"
)

// TestExam runs the conformance suite.
func TestExam(t *testing.T) {
	drivertest.Run(t, drivertest.Suite{
		World:  func(testing.TB) drivertest.World { return world{memlock.New(nil)} },
		Bubble: true,
	})
}

type world struct{ store *memlock.Engine }

func (w world) Client(testing.TB) drivertest.Client { return process{w.store.Client()} }
func (w world) Restart(testing.TB)                  { w.store.Restart() }
func (w world) Cut(testing.TB)                      { w.store.Hang() }
func (w world) Mend(testing.TB)                     { w.store.Resume() }

type process struct{ *memlock.Engine }

func (p process) Kill(testing.TB)   { p.Engine.Kill() }
func (p process) Freeze(testing.TB) { p.Engine.Freeze() }
func (p process) Thaw(testing.TB)   { p.Engine.Thaw() }
