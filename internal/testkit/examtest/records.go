package examtest

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/memlock"
)

// Records runs the cases whose names begin with prefix, such as "record-", one after the other. It
// fails if one of them is skipped, or if there is none.
func Records(t *testing.T, prefix string, s drivertest.Suite) {
	t.Helper()
	asked := 0
	for _, c := range drivertest.Cases() {
		if !strings.HasPrefix(c.Name, prefix) {
			continue
		}
		asked++
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, s)
			if t.Skipped() {
				t.Error("was not asked")
			}
		})
	}
	if asked == 0 {
		t.Errorf("no case is called %s", prefix)
	}
}

// Store is a client with the records of a store. It has the locks of a memory, which some of the
// cases about records take.
type Store struct {
	*memlock.Engine
	Stored driver.Records
}

// Records returns the records of the store.
func (s Store) Records() driver.Records { return s.Stored }

// Kill ends the client.
func (s Store) Kill(testing.TB) { s.Engine.Kill() }

// Freeze stops its locks until Thaw.
func (s Store) Freeze(testing.TB) { s.Engine.Freeze() }

// Thaw ends a Freeze.
func (s Store) Thaw(testing.TB) { s.Engine.Thaw() }
