package proc_test

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
)

// world is a server, "host:port", which the test has started.
type world string

func (w world) Client(t testing.TB) drivertest.Client { return proc.Start(t, "mine", string(w)) }
func (w world) Restart(testing.TB)                    {}

// What the test of an engine on a server consists of, beside its world.
func Example() {
	testMain := func(m *testing.M) { // as TestMain
		proc.Main(map[string]func(addr string) driver.Engine{
			"mine": func(addr string) driver.Engine { return echo(addr) }, // connects to addr
		})
		os.Exit(m.Run())
	}
	testExam := func(t *testing.T) { // as TestExam
		drivertest.Run(t, drivertest.Suite{World: func(t testing.TB) drivertest.World { return world("127.0.0.1:4711") }})
	}
	_, _ = testMain, testExam
}
