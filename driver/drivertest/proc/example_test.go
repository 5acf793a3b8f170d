package proc_test

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
)

// world is a server, "host:port", started by the test.
type world string

func (w world) Client(t testing.TB) drivertest.Client { return proc.Start(t, "mine", string(w)) }
func (w world) Restart(testing.TB)                    {}

// The test of an engine on a server, without its World.
func Example() {
	testMain := func(m *testing.M) { // as TestMain
		proc.Main(map[string]func(addr string) driver.Engine{
			"mine": func(addr string) driver.Engine { return echo(addr) }, // connects to addr
		})
		os.Exit(m.Run())
	}
	testConformance := func(t *testing.T) { // as TestConformance
		drivertest.Run(t, drivertest.Suite{World: func(t testing.TB) drivertest.World { return world("127.0.0.1:4711") }})
	}
	_, _ = testMain, testConformance
}
