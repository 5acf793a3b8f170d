package drivertest_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/memlock"
)

// store is a memlock as a drivertest.World.
type store struct{ *memlock.Engine }

func (s store) Client(testing.TB) drivertest.Client { return process{s.Engine.Client()} }
func (s store) Restart(testing.TB)                  { s.Engine.Restart() }
func (s store) Cut(testing.TB)                      { s.Engine.Hang() }
func (s store) Mend(testing.TB)                     { s.Engine.Resume() }

// process is a client of a memlock as a drivertest.Client.
type process struct{ *memlock.Engine }

func (p process) Kill(testing.TB)   { p.Engine.Kill() }
func (p process) Freeze(testing.TB) { p.Engine.Freeze() }
func (p process) Thaw(testing.TB)   { p.Engine.Thaw() }

func newStore(testing.TB) drivertest.World { return store{memlock.New(nil)} }

// TestExam runs the conformance suite on the reference implementation, in bubbles.
func TestExam(t *testing.T) {
	drivertest.Run(t, drivertest.Suite{World: newStore, Bubble: true})
}
