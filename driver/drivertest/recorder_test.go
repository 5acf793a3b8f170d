package drivertest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/driver/drivertest"
)

// recorder is a test whose failures are collected instead of reported.
type recorder struct {
	testing.TB
	mu       sync.Mutex // guards failures, cleanups
	failures []string
	cleanups []func()
}

func (r *recorder) note(failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, failure)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Fail()                          { r.note("failed") }
func (r *recorder) FailNow()                       { r.Fail(); runtime.Goexit() }
func (r *recorder) Error(args ...any)              { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any)   { r.note(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)              { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any)   { r.Errorf(f, args...); runtime.Goexit() }
func (r *recorder) Log(args ...any)                {}
func (r *recorder) Logf(format string, arg ...any) {}

// examine puts one case to an engine, in a bubble, and returns the failures.
func examine(t *testing.T, c drivertest.Case, e drivertest.Exam) []string {
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		r.TB = t
		done := make(chan struct{})
		go func() { // ends with the case, which Fatal ends early
			defer close(done)
			defer func() {
				for i := len(r.cleanups) - 1; i >= 0; i-- {
					r.cleanups[i]()
				}
			}()
			c.Run(r, e)
		}()
		<-done
	})
	return r.failures
}
