package redlock_test

import (
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/redlock"
)

// TestCallsInFlight: a call that begins while an operation waits is waited for as well, and none
// is lost to a race between the two.
func TestCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a redlock.Asked
		a.Wait()
		for range 3 {
			a.Begin()
			waited := make(chan struct{})
			go func() { // ends when no call is in flight
				a.Wait()
				close(waited)
			}()
			synctest.Wait()
			a.Begin()
			a.End()
			synctest.Wait()
			select {
			case <-waited:
				t.Error("a call is still in flight")
			default:
			}
			a.End()
			<-waited
		}
	})
}
