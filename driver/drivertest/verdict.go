package drivertest

import (
	"sync/atomic"
	"testing"
)

// verdict is what becomes of one case. It fails once.
type verdict struct {
	testing.TB
	omitted map[string]string // which cases failed by which omission; nil if a case is put alone
	failed  atomic.Bool
}

// Errorf fails the case, which goes no further than its next step. What fails after the
// first is not told: mostly it follows from that. Any goroutine may call it.
func (v *verdict) Errorf(format string, args ...any) {
	v.Helper()
	if !v.failed.Swap(true) {
		v.TB.Errorf(format, args...)
	}
}

// Fatalf is Errorf, and ends the case.
func (v *verdict) Fatalf(format string, args ...any) {
	v.Helper()
	v.Errorf(format, args...)
	v.TB.FailNow()
}

// step ends a case that has failed.
func (v *verdict) step() {
	if v.failed.Load() {
		v.TB.FailNow()
	}
}

// omits fails the case because the engine leaves out what other cases need too; those
// are then skipped.
func (v *verdict) omits(format string, args ...any) {
	v.Helper()
	if v.omitted != nil {
		v.omitted[format] = v.Name()
	}
	v.Fatalf(format, args...)
}

// unlessOmitted skips the case if one has failed before by the same omission.
func (v *verdict) unlessOmitted(format string) {
	v.Helper()
	if by := v.omitted[format]; by != "" {
		v.Skipf("it needs what %s failed by", by)
	}
}
