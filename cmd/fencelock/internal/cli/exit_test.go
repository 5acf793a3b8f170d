//go:build unix

package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
	"github.com/fencelock/fencelock/driver"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err    error
		want   int
		passes bool // whether elect retries
	}{
		{nil, 0, true},
		{errors.New("anything"), 1, true},
		{&driver.HeldError{Name: "a"}, 75, true},
		{fmt.Errorf("%w: refused", driver.ErrUnavailable), 69, true},
		{fmt.Errorf("%w: no right", driver.ErrConfig), 78, false},
		{fmt.Errorf("%w: limits", driver.ErrUnsupported), 78, false},
		{fmt.Errorf("%w: name", driver.ErrInvalid), 64, false},
		{driver.ErrLost, 76, true},
		{&exitError{code: 3, err: driver.ErrHeld}, 3, true},
		{&exitError{code: 7}, 7, true},
		{&supervise.StartError{Reason: supervise.NotFound, Err: errors.New("no")}, 127, true},
		{&supervise.StartError{Reason: supervise.NotExecutable, Err: errors.New("no")}, 126, true},
		{&supervise.StartError{Reason: supervise.Failed, Err: errors.New("no")}, 71, true},
		{fmt.Errorf("%w: %w", driver.ErrUnavailable, driver.ErrConfig), 78, false}, // the error that no retry can fix decides
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
		if passes(c.err) != c.passes {
			t.Errorf("%v: passes is %v", c.err, !c.passes)
		}
	}
}
