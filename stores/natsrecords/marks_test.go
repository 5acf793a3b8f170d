package natsrecords_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/stores/natsrecords"
)

// TestMarks: a smaller sequence number is refused for a while.
func TestMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m natsrecords.Marks
		for _, step := range []struct {
			after    time.Duration
			key      string
			sequence uint64
			anyway   bool
			want     bool
		}{
			{0, "a", 5, false, true}, {0, "a", 5, false, true}, {0, "a", 4, false, false}, {0, "b", 4, false, true},
			{20 * time.Second, "a", 0, false, false}, {20 * time.Second, "a", 4, false, false}, // it is old now
			{0, "a", 6, false, true}, {0, "a", 5, false, false}, {0, "a", 2, true, true}, {0, "a", 3, false, true},
			{2 * time.Minute, "a", 0, false, true}, {0, "b", 1, false, true},
		} {
			time.Sleep(step.after)
			if got := m.Pass(step.key, step.sequence, step.anyway); got != step.want {
				t.Errorf("%+v: %v", step, got)
			}
		}
	})
}
