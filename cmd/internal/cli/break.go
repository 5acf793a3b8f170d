//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// breakCmd is the verb break.
type breakCmd struct {
	Name   string
	Reason string // reported to the holder; not empty
	Force  bool   // end the connections of holders that do not release the lock
}

// newBreak returns the verb break. It requires a reason, and does not ask for confirmation, since
// scripts use it.
func newBreak(a *App) *cobra.Command {
	c := new(breakCmd)
	cmd := &cobra.Command{
		Use: "break [flags] NAME", GroupID: SeeLocks, Short: "Take a lock away from its holders and print a new token.",
		Long: `Ends every current acquisition of the name and prints a new fencing token, greater than theirs. Write it to the resource that the lock protects: from then on the resource refuses the writes of old holders. A holder that can be reached is notified at once. Any other holder stops at its deadline. break also ends a minimum hold.

On postgres://, a holder that cannot be reached keeps the lock: break prints the token and exits with 69. With --force, break ends the connection of that holder, and with it all other locks on that connection. It lists them on stderr first.`,
		Example: `fencelock status nightly
fencelock break nightly --reason "host db3 is gone"`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{nameRow}),
			ExitCodes: Table([]Row{
				{"1", "nobody holds the name, and it has no minimum hold"},
				{"74", "the lock is broken, but the token could not be written to stdout; it is on stderr"},
			}),
		},
		Args: Arguments(&c.Name), ValidArgsFunction: a.lockNames, PreRunE: Checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	f := cmd.Flags()
	f.StringVar(&c.Reason, "reason", "", "`TEXT` that says why. A holder that can be reached reports it.")
	f.BoolVar(&c.Force, "force", false, "On postgres://, end the connections of holders that do not release the lock.")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// check validates the flags.
func (c *breakCmd) check() error {
	if strings.TrimSpace(c.Reason) == "" {
		return errors.New("the reason is empty")
	}
	return driver.CheckName(c.Name)
}

// Run breaks the lock and prints the new token.
func (c *breakCmd) Run(a *App) error {
	token, err := ask(a, func(ctx context.Context, engine driver.Engine) (int64, error) { return c.take(ctx, a, engine) })
	switch {
	case token != 0: // a guard refuses a process that still keeps the lock, since its token is smaller
		return errors.Join(a.printToken(token, broken{c.Name, token}), err)
	case errors.Is(err, driver.ErrNotHeld):
		return Exit(exitNotHeld, fmt.Errorf("%s is not held\ntry: fencelock ls", termtext.Word(c.Name)))
	}
	return err
}

// take breaks the lock, by force if that is wanted. A token with an error means that the lock is
// broken, but that a holder has not released it yet.
func (c *breakCmd) take(ctx context.Context, a *App, engine driver.Engine) (int64, error) {
	f, forceful := engine.(engineurl.Forcer)
	switch {
	case c.Force && !forceful:
		return 0, fmt.Errorf("%w: %s has no --force\ntry: break without --force, which takes the lock from every holder on this engine", driver.ErrUnsupported, engine.Traits().Engine)
	case c.Force:
		return c.force(ctx, a, f)
	}
	token, err := fencelock.New(engine, nil).Break(ctx, c.Name, c.Reason)
	if forceful && token != 0 && errors.Is(err, driver.ErrUnavailable) {
		err = fmt.Errorf("%w\ntry: fencelock break %s --force --reason ...; it lists the other locks that it ends", err, termtext.ShellWord(c.Name))
	}
	return token, err
}

// force reports the other locks on the connection of the holder, which may end too, and breaks the
// lock.
func (c *breakCmd) force(ctx context.Context, a *App, f engineurl.Forcer) (int64, error) {
	names, err := f.NamesOnSameSession(ctx, c.Name)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		a.Say("if the connection must be ended, this lock on it ends too: %s", termtext.Word(name))
	}
	return f.BreakByForce(ctx, c.Name, c.Reason)
}

// broken is what break --json prints. docs/cli-json.md documents it.
type broken struct {
	Name  string `json:"name"`
	Token int64  `json:"token"` // greater than that of every earlier holder
}
