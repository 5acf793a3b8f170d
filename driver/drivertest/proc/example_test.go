package proc_test

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
)

// What the test of an engine on a server consists of, beside a world that embeds the proxy.
func Example() {
	testMain := func(m *testing.M) { // as TestMain
		proc.Main(map[string]func(addr string) driver.Engine{
			"mine": func(addr string) driver.Engine { return echo(addr) }, // connects to addr
		})
		os.Exit(m.Run())
	}
	testExam := func(t *testing.T) { // as TestExam
		drivertest.Run(t, drivertest.Suite{World: func(t testing.TB) drivertest.World {
			return world{proc.NewProxy(t, "127.0.0.1:4711")} // where the test has started a server
		}})
	}
	_, _ = testMain, testExam
}
