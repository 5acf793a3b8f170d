//go:build unix

package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything"), 1},
		{&driver.HeldError{Name: "a"}, 75},
		{fmt.Errorf("%w: refused", driver.ErrUnavailable), 69},
		{fmt.Errorf("%w: no right", driver.ErrConfig), 78},
		{fmt.Errorf("%w: limits", driver.ErrUnsupported), 78},
		{fmt.Errorf("%w: name", driver.ErrInvalid), 64},
		{driver.ErrLost, 76},
		{&exitError{code: 3, err: driver.ErrHeld}, 3},
		{&exitError{code: 7}, 7},
		{&supervise.StartError{Code: supervise.NotFound, Err: errors.New("no")}, 127},
		{&supervise.StartError{Code: supervise.NotExecutable, Err: errors.New("no")}, 126},
		{&supervise.StartError{Code: supervise.Failed, Err: errors.New("no")}, 71},
		{fmt.Errorf("%w: %w", driver.ErrUnavailable, driver.ErrConfig), 78}, // the error that no retry can fix decides
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}
