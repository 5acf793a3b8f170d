package drivertest_test

import (
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
)

// The cases of the exam are chosen by what an engine declares: one whose locks
// end with their process is not asked about leases.
func ExampleCases() {
	files := driver.Traits{Engine: "files", Order: driver.OrderAll, Limits: true}
	for _, c := range drivertest.Cases() {
		switch c.Name {
		case "expiry", "crash-frees", "fifo", "limit", "limit-unsupported":
			fmt.Println(c.Name, c.Needs(files))
		}
	}
	// Output:
	// expiry false
	// crash-frees true
	// fifo true
	// limit true
	// limit-unsupported false
}
