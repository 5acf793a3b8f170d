//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
)

// resignCmd is the verb resign.
type resignCmd struct{ Name, Reason, To string }

func newResign(a *App) *cobra.Command {
	c := new(resignCmd)
	cmd := &cobra.Command{
		Use: "resign [flags] NAME", GroupID: SeeLocks, Short: "Depose the leader and print a token that shuts it out.",
		Long: `Ends the term of the current leader. The next process in the queue leads at once. The old leader, if it can be reached, stops its command and campaigns again behind the others; otherwise its term ends with its lease. If the leader gives up at the same moment, its successor stays the leader.

The new leader may start before the old one has stopped. To avoid an overlap, end the process of the leader instead: elect releases the name after its command has ended.

With --to, a process on that host leads next, wherever it is in the queue and whatever its --rank is. The others give way to it. resign waits until it has led for 3 seconds, at most 20 seconds, and waits in the queue itself during that time. If that host has the leader, resign changes nothing and prints the token of the leader.`,
		Example: `fencelock resign billing --reason maintenance
fencelock resign billing --to web2
fencelock status billing`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{nameRow}),
			ExitCodes: Table([]Row{
				{"1", "there is no leader, or it has just given up, or no process waits on the host of --to"},
				{"75", "the term has ended, but another host than that of --to leads"},
				{"74", "the term has ended, but the token could not be written to stdout; it is on stderr"},
			}),
		},
		Args: Arguments(&c.Name), ValidArgsFunction: a.lockNames, PreRunE: checkedName(&c.Name),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().StringVar(&c.Reason, "reason", "", "`TEXT` that says why. A leader that can be reached reports it.")
	text(cmd.Flags(), &c.To, "to", "`HOST` of the next leader, as status shows it.")
	return cmd
}

// Run ends the term of the leader and prints the new token.
func (c *resignCmd) Run(a *App) error {
	var leader election.Leader
	var token int64
	err := a.with(func(ctx context.Context, engine driver.Engine) (err error) {
		leader, token, err = c.depose(ctx, fencelock.New(engine, nil))
		return err
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driver.ErrUnavailable): // only --to has a limit
		err = Exit(exitBusy, fmt.Errorf("%s has not become the leader of %s\ntry: fencelock status %s", termtext.Word(c.To), termtext.Word(c.Name), termtext.ShellWord(c.Name)))
	case errors.Is(err, election.ErrNoCandidate):
		return Exit(exitNotHeld, fmt.Errorf("no process waits for %s on %s\ntry: fencelock status %s", termtext.Word(c.Name), termtext.Word(c.To), termtext.ShellWord(c.Name)))
	}
	switch {
	case token != 0: // a guard refuses the old leader, even if it continues, since its token is smaller
		return errors.Join(a.printToken(token, resigned{c.Name, token, leader.Owner, leader.Host, leader.PID, leader.Term}), err)
	case errors.Is(err, driver.ErrNotHeld):
		return Exit(exitNotHeld, fmt.Errorf("%s has no leader\ntry: fencelock status %s", termtext.Word(c.Name), termtext.ShellWord(c.Name)))
	}
	return err
}

// transferLimit is how long the host of --to may take to become the leader.
const transferLimit = 20 * time.Second

// depose ends the term of the leader, in favour of the host of --to if there is one.
func (c *resignCmd) depose(ctx context.Context, locks *fencelock.Locker) (election.Leader, int64, error) {
	reason := cmp.Or(c.Reason, "asked to resign")
	if c.To == "" {
		return election.Depose(ctx, locks, c.Name, reason)
	}
	ctx, cancel := context.WithTimeout(ctx, transferLimit)
	defer cancel()
	return election.Transfer(ctx, locks, c.Name, c.To, reason)
}

// resigned is what resign --json prints. docs/cli-json.md documents it.
type resigned struct {
	Name  string `json:"name"`
	Token int64  `json:"token"`
	Owner string `json:"owner"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Term  int64  `json:"term"`
}
