package limits_test

import (
	"errors"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limits"
)

func TestDiffer(t *testing.T) {
	err := limits.Differ("seats", 3, 0)
	want := `invalid request: "seats" is in use with a limit of 3, and this request asks for it without a limit; ` +
		`all who share a name must ask for the same limit`
	if !errors.Is(err, driver.ErrInvalid) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
