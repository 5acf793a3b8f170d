package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

func TestCheckSwap(t *testing.T) {
	for _, c := range []struct {
		what, key string
		size      int
		ttl       time.Duration
		says      string // empty if it is valid
	}{
		{"nothing to say", "a", 0, 0, ""},
		{"all there may be", strings.Repeat("n", 512), driver.MaxRecord, driver.MaxDuration, ""},
		{"no key", "", 0, 0, "is empty"},
		{"a long value", "a", driver.MaxRecord + 1, 0, "524289 bytes, more than 524288"},
		{"a negative TTL", "a", 0, -1, "is negative"},
		{"a long TTL", "a", 0, driver.MaxDuration + 1, "longer than ten years"},
	} {
		err := driver.CheckSwap(c.key, make([]byte, c.size), c.ttl)
		if c.says == "" && err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if c.says != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want ErrInvalid that says %q", c.what, err, c.says)
		}
	}
}
