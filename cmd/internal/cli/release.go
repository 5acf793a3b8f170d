//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// handleRow explains the argument of release and renew.
var handleRow = Row{"HANDLE", "The handle that fencelock acquire printed."}

// releaseCmd is the verb release.
type releaseCmd struct{ handle }

func newRelease(a *App) *cobra.Command {
	c := new(releaseCmd)
	return &cobra.Command{
		Use: "release [flags] HANDLE", GroupID: useLocks, Short: "Release a lock of fencelock acquire.", SuggestFor: []string{"unlock"},
		Long:    `It works on every host that reaches the locks, not only on that of the keeper. A later holder of the name keeps the lock.`,
		Example: `fencelock release "$FENCELOCK_HANDLE"`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{handleRow}),
			ExitCodes:    Table([]Row{{"76", "the lock was lost or released before"}}),
		},
		Args: Arguments(&c.text), PreRunE: Checked(c.check), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
}

// Run ends the acquisition of the handle. If its keeper is on this host but cannot reach the server,
// this process would not reach it either.
func (c *releaseCmd) Run(a *App) error {
	owner, name := c.parts()
	answer, ok := askKeeper(owner, askRelease, keeperLimit, func() {
		a.Say("waiting until the keeper of %s has released it, for at most %v", termtext.Word(name), keeperLimit)
	})
	switch outcome, why, _ := strings.Cut(answer, " "); {
	case !ok:
		return c.releaseElsewhere(a)
	case outcome == answerReleased:
		return nil
	case outcome == answerLost:
		return c.lost()
	default:
		return Exit(ExitUnavailable, fmt.Errorf("the keeper has ended, and the lock is free when its lease expires: %s\ntry: fencelock doctor", why))
	}
}

// releaseReason tells a keeper that its lock was not taken away.
const releaseReason = "released by fencelock release"

// releaseElsewhere ends an acquisition whose keeper is on another host, or gone.
func (c *releaseCmd) releaseElsewhere(a *App) error {
	owner, name := c.parts()
	err := a.with(func(ctx context.Context, engine driver.Engine) error {
		locker := fencelock.New(engine, nil)
		recordRelease(ctx, locker, owner)
		_, err := locker.BreakOwner(ctx, name, owner, releaseReason)
		return err
	})
	if errors.Is(err, driver.ErrNotHeld) {
		return c.lost()
	}
	return err
}

// A release on another host also leaves a record. The server sends the reason of a break to the
// keeper, but the message is lost if the keeper is not connected at that moment.
const (
	recordLife  = time.Hour   // longer than a keeper needs to notice the end of its lock
	recordLimit = time.Second // for a read or a write of it
)

// recordOf returns the key of the record about an acquisition.
func recordOf(owner string) string { return "fencelock:released:" + owner }

// recordRelease writes the record, if the engine has records. If it fails, the keeper may take the
// release for a loss.
func recordRelease(ctx context.Context, locker *fencelock.Locker, owner string) {
	records, err := locker.Records()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recordLimit)
	defer cancel()
	_, _ = records.Swap(ctx, recordOf(owner), []byte(releaseReason), "", recordLife)
}

// releaseRecorded reports whether there is a record of the release.
func releaseRecorded(locker *fencelock.Locker, owner string) bool {
	records, err := locker.Records()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordLimit)
	defer cancel()
	r, err := records.Get(ctx, recordOf(owner))
	return err == nil && r.Version != ""
}
