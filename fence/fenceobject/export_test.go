package fenceobject

import "github.com/fencelock/fencelock/fence"

// Break changes the rule of the guard, until mend is called.
func Break(isStale func(f fence.Fence, floor int64) bool, raised func(f fence.Fence, floor int64) int64) (mend func()) {
	s, r := stale, raise
	if isStale != nil {
		stale = isStale
	}
	if raised != nil {
		raise = raised
	}
	return func() { stale, raise = s, r }
}
