package redislock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/redislock"
)

// TestOwnTime: a number that a server returns stands for the time at which it was made, never for a
// later one, and one that this client has not made for none.
func TestOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, stamp := redislock.OwnTime()
		sent := time.Now()
		n := stamp(sent)
		time.Sleep(time.Hour)
		if got := at(n); got.After(sent) || sent.Sub(got) > time.Millisecond {
			t.Errorf("%v from the time of the request", got.Sub(sent))
		}
		for _, none := range []int64{0, -1, n + 2*time.Hour.Microseconds(), time.Now().UnixMicro()} {
			if got := at(none); !got.IsZero() {
				t.Errorf("%d is %v", none, got)
			}
		}
	})
}
