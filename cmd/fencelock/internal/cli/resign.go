//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
)

// resignCmd takes a name away from its leader, and from nobody else.
type resignCmd struct{ Name, Reason string }

// newResign returns the verb resign.
func newResign(a *app) *cobra.Command {
	c := new(resignCmd)
	cmd := &cobra.Command{
		Use: "resign [flags] NAME", GroupID: seeLocks, Short: "Make the leader give way to the next one, and print a token that shuts it out.",
		Long: `Ends the term of the leader that is there, and of no other: if it gives way in the same instant, its successor keeps the name. The next one in the queue leads at once, while the old one, if it can be reached, stops its work, and campaigns again behind the others; otherwise its term ends with its lease. To stop a leader without any overlap, end its process: elect gives the name back when its command has ended.`,
		Example: `fencelock resign billing --reason maintenance
fencelock status billing`,
		Annotations: map[string]string{
			argumentRows: table([]explained{nameRow}),
			exitCodes: table([]explained{
				{"1", "nobody leads, or the leader has just gone"},
				{"74", "the token could not be printed: the term has ended, and the token stands on stderr"},
			}),
		},
		Args: arguments(&c.Name), ValidArgsFunction: a.lockNames, PreRunE: checkedName(&c.Name),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().StringVar(&c.Reason, "reason", "", "`TEXT` that says why; the leader is told, where it can be reached.")
	return cmd
}

// Run ends the term, and prints the token.
func (c *resignCmd) Run(a *app) error {
	var leader election.Leader
	var token int64
	err := a.with(func(ctx context.Context, engine driver.Engine) (err error) {
		leader, token, err = election.Depose(ctx, fencelock.New(engine, nil), c.Name, cmp.Or(c.Reason, "asked to resign"))
		return err
	})
	switch {
	case token != 0: // even if the old leader keeps on, the token shuts it out
		return errors.Join(a.printToken(token, resigned{c.Name, token, leader.Owner, leader.Host, leader.PID, leader.Term}), err)
	case errors.Is(err, driver.ErrNotHeld):
		return &exitError{code: exitNotHeld, err: fmt.Errorf("nobody leads %s\ntry: fencelock status %s", termtext.Word(c.Name), termtext.ShellWord(c.Name))}
	}
	return err
}

// resigned is what resign --json prints.
type resigned struct {
	Name  string `json:"name"`
	Token int64  `json:"token"`
	Owner string `json:"owner"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Term  int64  `json:"term"`
}
