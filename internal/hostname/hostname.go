// Package hostname has the name of this host, by which holders and runs are shown.
package hostname

import (
	"os"
	"sync"
)

// Get returns the name of this host, or "unknown". It is read once: that costs system calls, and
// every request of a lock carries it.
var Get = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
})
