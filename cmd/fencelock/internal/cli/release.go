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

// releaseCmd is the verb release.
type releaseCmd struct{ Handle string }

func newRelease(a *app) *cobra.Command {
	c := new(releaseCmd)
	return &cobra.Command{
		Use: "release [flags] HANDLE", GroupID: useLocks, Short: "Release a lock of fencelock acquire.",
		Long:    `It works on every host that reaches the locks, not only on that of the keeper. A later holder of the name keeps the lock.`,
		Example: `fencelock release "$FENCELOCK_HANDLE"`,
		Annotations: map[string]string{
			argumentRows: table([]explained{{"HANDLE", "The handle that fencelock acquire printed."}}),
			exitCodes:    table([]explained{{"76", "the lock was lost or released before"}}),
		},
		Args: arguments(&c.Handle), PreRunE: checked(c.check), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
}

// releaseReason tells a keeper that its lock was not taken away.
const releaseReason = "released by fencelock release"

// parts returns the owner and the name in a handle.
func (c *releaseCmd) parts() (owner, name string) {
	owner, name, _ = strings.Cut(c.Handle, ":")
	return owner, name
}

// check validates the handle.
func (c *releaseCmd) check() error {
	if owner, name := c.parts(); owner == "" || driver.CheckName(name) != nil {
		return fmt.Errorf("%s is not a handle; write the last word that fencelock acquire printed, in quotes", termtext.Word(c.Handle))
	}
	return nil
}

// Run ends the acquisition of the handle.
func (c *releaseCmd) Run(a *app) error {
	owner, name := c.parts()
	switch askKeeper(owner) {
	case answerReleased:
		return nil
	case answerLost:
		return c.lost()
	}
	err := a.with(func(ctx context.Context, engine driver.Engine) error {
		_, err := fencelock.New(engine, nil).BreakOwner(ctx, name, owner, releaseReason)
		return err
	})
	if errors.Is(err, driver.ErrNotHeld) {
		return c.lost()
	}
	return err
}

// lost is the error for an acquisition that has ended.
func (c *releaseCmd) lost() error {
	_, name := c.parts()
	return &exitError{code: exitLost, err: fmt.Errorf("the lock %s of this handle was lost or released before", termtext.Word(name))}
}
