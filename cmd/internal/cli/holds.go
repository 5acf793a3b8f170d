//go:build unix

package cli

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// holdsCmd is the verb holds. An empty field matches every holder.
type holdsCmd struct {
	Name, Owner, Host, Note string
}

func newHolds(a *App) *cobra.Command {
	c := new(holdsCmd)
	cmd := &cobra.Command{
		Use: "holds [flags] NAME", GroupID: SeeLocks, Short: "Exit with 0 if this host holds a lock, with 1 if not.", SuggestFor: []string{"held", "test"},
		Long: `Prints the fencing token of the holder. With --owner, --host or --note the question is about those holders and not about this host. Hosts with the same name count as one.

The answer may be out of date when you read it. A step that must not happen without the lock belongs into the command of run or elect, and its writes into a guard that checks the token.`,
		Example: `fencelock holds billing && ./publish
fencelock holds billing --host db-2`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{nameRow}),
			ExitCodes:    Table([]Row{{"1", "no such holder has the lock"}}),
		},
		Args: Arguments(&c.Name), ValidArgsFunction: a.lockNames, PreRunE: checkedName(&c.Name),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	f := cmd.Flags()
	text(f, &c.Owner, "owner", "`ID` of the acquisition, such as FENCELOCK_OWNER in the command of run.")
	text(f, &c.Host, "host", "`NAME` of the holder's host, as ls shows it.")
	text(f, &c.Note, "note", "`TEXT` of the holder's note.")
	return cmd
}

// Run prints the token of the holder that was asked for.
func (c *holdsCmd) Run(a *App) error {
	if c.Owner == "" && c.Host == "" && c.Note == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("this host has no name, use --host: %w", err)
		}
		c.Host = host
	}
	status, err := a.status(c.Name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(status.Holders, c.matches)
	if i < 0 {
		return c.refusal(status)
	}
	v := viewOf(status).Holders[i]
	return a.Print(v, fmt.Sprintln(v.Token))
}

// matches reports whether the question is about a holder.
func (c *holdsCmd) matches(h driver.Holder) bool {
	return (c.Owner == "" || h.Owner == c.Owner) && (c.Host == "" || h.Host == c.Host) && (c.Note == "" || h.Note == c.Note)
}

// refusal says who holds the name instead. A status that may be incomplete proves nothing.
func (c *holdsCmd) refusal(s driver.Status) error {
	name := termtext.Word(s.Name)
	switch {
	case s.Trouble != nil:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, s.Trouble)
	case len(s.Holders) == 0:
		return Exit(exitNotHeld, fmt.Errorf("nobody holds %s", name))
	}
	h := s.Holders[0]
	return Exit(exitNotHeld, fmt.Errorf("%s is held by %s, token %d, owner %s", name, holderPlace(h), h.Token, termtext.Word(h.Owner)))
}
