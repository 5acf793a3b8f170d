package drivertest

import (
	"sync"
	"testing"
)

// faults are the faults of a World during a case.
type faults struct {
	t     testing.TB
	world World

	mu     sync.Mutex // guards frozen, cut
	frozen map[Client]bool
	cut    bool // between Cut and Mend
}

// freeze freezes a client until thaw or the end of the case.
func (f *faults) freeze(c Client) {
	f.mu.Lock()
	f.frozen[c] = true
	f.mu.Unlock()
	c.Freeze(f.t)
}

// thaw resumes a client, if it is frozen.
func (f *faults) thaw(c Client) {
	f.mu.Lock()
	frozen := f.frozen[c]
	delete(f.frozen, c)
	f.mu.Unlock()
	if frozen {
		c.Thaw(f.t)
	}
}

// needsCutter skips the case if the World is no Cutter.
func (f *faults) needsCutter() {
	f.t.Helper()
	if _, ok := f.world.(Cutter); !ok {
		f.t.Skip("the World is no drivertest.Cutter")
	}
}

// silence makes the engine unresponsive until mend or the end of the case. ok is false if the World
// is no Cutter.
func (f *faults) silence() (ok bool) {
	w, ok := f.world.(Cutter)
	if ok {
		f.mu.Lock()
		f.cut = true
		f.mu.Unlock()
		w.Cut(f.t)
	}
	return ok
}

// mend makes the engine answer again, if it is cut.
func (f *faults) mend() {
	f.mu.Lock()
	cut := f.cut
	f.cut = false
	f.mu.Unlock()
	if cut {
		f.world.(Cutter).Mend(f.t)
	}
}

// undo ends all faults.
func (f *faults) undo() {
	f.mu.Lock()
	for c := range f.frozen {
		c.Thaw(f.t)
	}
	f.mu.Unlock()
	f.mend()
}
