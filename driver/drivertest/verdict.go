package drivertest

import (
	"sync/atomic"
	"testing"
)

// verdict is the result of one case. It reports one failure at most.
type verdict struct {
	testing.TB
	omitted map[string]string // which cases failed by which omission; nil if the case runs alone
	failed  atomic.Bool
}

// Errorf fails the case, which ends at its next step. It reports only the first failure, because
// others mostly follow from that. Any goroutine may call it.
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

// omits fails the case because the engine omits something that other cases need too. Those are then
// skipped.
func (v *verdict) omits(format string, args ...any) {
	v.Helper()
	if v.omitted != nil {
		v.omitted[format] = v.Name()
	}
	v.Fatalf(format, args...)
}

// unlessOmitted skips the case if another one has failed by the same omission.
func (v *verdict) unlessOmitted(format string) {
	v.Helper()
	if by := v.omitted[format]; by != "" {
		v.Skipf("it needs what %s found missing", by)
	}
}
