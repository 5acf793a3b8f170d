//go:build unix

package optimistic_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/engines"
)

// TestNoUpdateIsLostOnAnyEngine is TestNoUpdateIsLost on the engines that keep records.
// Both are of full size with FENCELOCK_SLOW set.
func TestNoUpdateIsLostOnAnyEngine(t *testing.T) {
	clients, each := 6, 4
	if slow {
		clients, each = 64, 100
	}
	all := engines.All(30 * time.Second)
	delete(all, "redlock") // which keeps none
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			with := count(t, all[name](t), clients, each, true)
			t.Logf("%d clients added %d times in %v: at most %d tries with promotion", clients, each, time.Since(begun), with)
			if slow { // the comparison takes long on files
				begun = time.Now()
				without := count(t, all[name](t), clients, each, false)
				t.Logf("and in %v: at most %d tries without promotion", time.Since(begun), without)
			}
		})
	}
}
