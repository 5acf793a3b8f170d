//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// handleRow explains the argument of release and renew.
var handleRow = explained{"HANDLE", "The handle that fencelock acquire printed."}

// releaseCmd is the verb release.
type releaseCmd struct{ handle }

func newRelease(a *app) *cobra.Command {
	c := new(releaseCmd)
	return &cobra.Command{
		Use: "release [flags] HANDLE", GroupID: useLocks, Short: "Release a lock of fencelock acquire.",
		Long:    `It works on every host that reaches the locks, not only on that of the keeper. A later holder of the name keeps the lock.`,
		Example: `fencelock release "$FENCELOCK_HANDLE"`,
		Annotations: map[string]string{
			argumentRows: table([]explained{handleRow}),
			exitCodes:    table([]explained{{"76", "the lock was lost or released before"}}),
		},
		Args: arguments(&c.text), PreRunE: checked(c.check), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
}

// Run ends the acquisition of the handle. If its keeper is on this host but cannot reach the server,
// this process would not reach it either.
func (c *releaseCmd) Run(a *app) error {
	owner, name := c.parts()
	answer, ok := askKeeper(owner, askRelease, keeperLimit, func() {
		a.say("waiting until the keeper of %s has released it, for at most %v", termtext.Word(name), keeperLimit)
	})
	switch outcome, why, _ := strings.Cut(answer, " "); {
	case !ok:
		return c.releaseElsewhere(a)
	case outcome == answerReleased:
		return nil
	case outcome == answerLost:
		return c.lost()
	default:
		return &exitError{code: exitUnavailable, err: fmt.Errorf("%s\ntry: nothing: the keeper has ended, and the lock is free when its lease expires", why)}
	}
}

// releaseReason tells a keeper that its lock was not taken away.
const releaseReason = "released by fencelock release"

// releaseElsewhere ends an acquisition whose keeper is on another host, or gone.
func (c *releaseCmd) releaseElsewhere(a *app) error {
	owner, name := c.parts()
	err := a.with(func(ctx context.Context, engine driver.Engine) error {
		_, err := fencelock.New(engine, nil).BreakOwner(ctx, name, owner, releaseReason)
		return err
	})
	if errors.Is(err, driver.ErrNotHeld) {
		return c.lost()
	}
	return err
}
