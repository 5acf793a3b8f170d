//go:build unix

package chaos

import "sync/atomic"

// Live is what is known while a run goes on.
type Live struct {
	Acquired, Faults, Violations atomic.Int64
}
