package drivertest_test

import (
	"os"
	"slices"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
)

func TestMain(m *testing.M) {
	proc.Main(map[string]func(string) driver.Engine{"toy": func(string) driver.Engine { return newToy() }})
	os.Exit(m.Run())
}

// toys is a world whose clients are processes, each with a toy of its own.
type toys struct{}

func (toys) Client(t testing.TB) drivertest.Client { return proc.Start(t, "toy", "") }
func (toys) Restart(testing.TB)                    {}

// What an engine in another process has not is not asked for.
func TestProcessesHaveWhatTheirEngineHas(t *testing.T) {
	t.Parallel()
	e := drivertest.Suite{World: func(testing.TB) drivertest.World { return toys{} }}
	for _, c := range drivertest.Cases() {
		if slices.Contains([]string{"list", "break", "break-owner", "record-clock"}, c.Name) {
			if failures, skipped := drivertest.Collect(t, func(t testing.TB) { c.Run(t, e) }); skipped == "" || len(failures) > 0 {
				t.Errorf("%s: skipped because %q, failures %q", c.Name, skipped, failures)
			}
		}
	}
}
