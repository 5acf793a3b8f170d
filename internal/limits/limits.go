// Package limits has the errors of requests that do not agree with others on the limit of a name.
package limits

import (
	"fmt"

	"github.com/fencelock/fencelock/driver"
)

// Differ is the ErrInvalid for a request whose limit differs from that of the current holders and
// waiters of the name. 0 means no limit.
func Differ(name string, agreed, asked int) error {
	return fmt.Errorf("%w: %q is in use %s, and this request asks for it %s; all who share a name must ask for the same limit",
		driver.ErrInvalid, name, limited(agreed), limited(asked))
}

// Unlike is the ErrInvalid for a request that adopts an acquisition with another limit or weight.
// They are those of the acquisition.
func Unlike(name string, limit, weight int) error {
	return fmt.Errorf("%w: %q was acquired %s and a weight of %d; adopt it with the same", driver.ErrInvalid, name, limited(limit), weight)
}

func limited(limit int) string {
	if limit == 0 {
		return "without a limit"
	}
	return fmt.Sprintf("with a limit of %d", limit)
}
