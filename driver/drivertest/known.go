package drivertest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// recorder is a testing.TB that collects failures instead of reporting them.
type recorder struct {
	testing.TB
	mu       sync.Mutex // guards failures, skipped, cleanups
	failures []string
	skipped  string // why
	cleanups []func()
}

// collect runs a case, which may be in a bubble, and returns its failures, or why it was skipped.
func collect(t testing.TB, run func(testing.TB)) (failures []string, skipped string) {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // ends with the case, which Fatal ends early
		defer close(done)
		defer r.clean()
		run(r)
	}()
	<-done
	return r.failures, r.skipped
}

func (r *recorder) note(failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, failure)
}

// Failed reports whether there is a failure.
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

// Cleanup registers f for the end of the case.
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// clean runs the cleanups, the last one first.
func (r *recorder) clean() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

// The methods with which a test fails or logs.

func (r *recorder) Fail()                        { r.note("failed") }
func (r *recorder) FailNow()                     { r.Fail(); runtime.Goexit() }
func (r *recorder) Error(args ...any)            { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }
func (r *recorder) Log(...any)                   {}
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Skip(args ...any)             { r.skip(fmt.Sprint(args...)) }
func (r *recorder) Skipf(f string, args ...any)  { r.skip(fmt.Sprintf(f, args...)) }
func (r *recorder) SkipNow()                     { r.skip("without a reason") }

func (r *recorder) skip(why string) {
	r.mu.Lock()
	r.skipped = why
	r.mu.Unlock()
	runtime.Goexit()
}
