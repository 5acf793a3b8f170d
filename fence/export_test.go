package fence

import "os"

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

// OnSync makes f decide about every sync of a file, until mend is called.
func OnSync(f func(file *os.File, sync func() error) error) (mend func()) {
	before := syncFile
	syncFile = func(file *os.File) error { return f(file, func() error { return before(file) }) }
	return func() { syncFile = before }
}
