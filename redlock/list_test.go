package redlock_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redlock"
)

// TestAgree: nodes that show different tokens of one holder.
func TestAgree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		tokens []int64
		want   int64
	}{
		{"all show the same", []int64{7, 7, 7}, 7},
		{"one heard of it late, after the next holder", []int64{7, 9, 7}, 7},
		{"one has not heard of the second round", []int64{9, 7, 9}, 9},
		{"in the middle of the second round", []int64{7, 8, 9}, 9},
	} {
		var hs []driver.Holder
		for _, token := range c.tokens {
			hs = append(hs, driver.Holder{Token: token})
		}
		if got := redlock.Agree(hs, 2).Token; got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}
