package fence

// Break changes the rule of the guards that are written in Go, until mend is called.
func Break(isStale func(f Fence, floor int64) bool, raised func(f Fence, floor int64) int64) (mend func()) {
	s, r := stale, raise
	if isStale != nil {
		stale = isStale
	}
	if raised != nil {
		raise = raised
	}
	return func() { stale, raise = s, r }
}
