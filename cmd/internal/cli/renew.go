//go:build unix

package cli

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// renewCmd is the verb renew.
type renewCmd struct {
	handle
	MaxHold time.Duration
}

func newRenew(a *App) *cobra.Command {
	c := new(renewCmd)
	cmd := &cobra.Command{
		Use: "renew [flags] HANDLE", GroupID: useLocks, Short: "Set the maximum hold of a lock of fencelock acquire anew.",
		Long: `The lock is then held for at most the time of --max-hold from now, which may be more or less than before. The keeper renews the lease by itself; this command does not.

The keeper enforces the maximum, so the command asks it, on the host of the keeper and as its user or root. A server passes a release on to another host, but no new maximum. "fencelock ls" shows the new maximum on the host of the keeper, and the one of the acquisition elsewhere.`,
		Example: `fencelock renew "$FENCELOCK_HANDLE" --max-hold 10m`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{handleRow}),
			ExitCodes: Table([]Row{
				{"1", "the keeper is on another host, belongs to another user or does not answer"},
				{"76", "the lock was lost or released before, or its maximum hold is over"},
			}),
		},
		Args: Arguments(&c.text), PreRunE: Checked(c.check), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	atLeast(cmd.Flags(), &c.MaxHold, "max-hold", positive, "Release the lock after `DURATION` from now. Required.")
	_ = cmd.MarkFlagRequired("max-hold")
	return cmd
}

// Run asks the keeper of the handle.
func (c *renewCmd) Run(a *App) error {
	owner, name := c.parts()
	ms := max(1, c.MaxHold.Milliseconds())
	answer, ok := askKeeper(owner, askRenew+" "+strconv.FormatInt(ms, 10), renewLimit, func() {})
	switch {
	case !ok:
		return c.unreachable(a)
	case answer == answerRenewed:
		return nil
	case answer == answerOver:
		return Exit(exitLost, fmt.Errorf("the maximum hold of %s is over; its keeper is about to release it", termtext.Word(name)))
	case answer == answerLost:
		return c.lost()
	}
	return &misuse{error: fmt.Errorf("--max-hold %v is longer than ten years", c.MaxHold)}
}

// unreachable is the error for a keeper that does not answer here.
func (c *renewCmd) unreachable(a *App) error {
	owner, name := c.parts()
	status, err := a.status(name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(status.Holders, func(h driver.Holder) bool { return h.Owner == owner })
	switch {
	case i >= 0:
	case status.Trouble != nil:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, status.Trouble)
	default:
		return c.lost()
	}
	keeper := status.Holders[i]
	what, try := "cannot be asked from here", "the same command on that host, as the user of the keeper or root"
	if host, err := os.Hostname(); err == nil && host == keeper.Host {
		what, try = "does not answer", fmt.Sprintf("the same command as the user of the keeper or root; if the keeper is stopped, kill -CONT %d", keeper.PID)
	}
	return Exit(exitNotHeld, fmt.Errorf("the keeper of %s is %s, and %s\ntry: %s", termtext.Word(name), holderPlace(keeper), what, try))
}
