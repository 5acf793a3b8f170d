//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// breakCmd takes a lock away.
type breakCmd struct {
	Name   string
	Reason string // told to the holder; must not be empty
	Force  bool   // end the connections of those who do not let go
}

// newBreak returns the verb break. It asks for a reason and for no confirmation: scripts use it.
func newBreak(a *app) *cobra.Command {
	c := new(breakCmd)
	cmd := &cobra.Command{
		Use: "break [flags] NAME", GroupID: seeLocks, Short: "Take a lock away from its holders and print a new token.", SuggestFor: []string{"unlock", "release"},
		Long: `Ends every current acquisition of the name and prints a new fencing token, greater than theirs. Write it to the resource that the lock protects: from then on the resource refuses the writes of old holders. A holder that can be reached is notified at once. Any other holder stops at its deadline. break also ends a minimum hold.

On postgres://, a holder that cannot be reached keeps the lock: break prints the token and exits with 69. With --force, break ends the connection of that holder, and with it all other locks on that connection. It lists them on stderr first.`,
		Example: `fencelock status nightly
fencelock break nightly --reason "host db3 is gone"`,
		Annotations: map[string]string{
			argumentRows: table([]explained{nameRow}),
			exitCodes: table([]explained{
				{"1", "nobody holds the name, and it has no minimum hold"},
				{"74", "the lock is broken, but the token could not be written to stdout; it is on stderr"},
			}),
		},
		Args: arguments(&c.Name), ValidArgsFunction: a.lockNames, PreRunE: checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.Reason, "reason", "", "`TEXT` that says why. A holder that can be reached reports it.")
	f.BoolVar(&c.Force, "force", false, "On postgres://, end the connections of holders that do not release the lock.")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// check finds what the parser cannot.
func (c *breakCmd) check() error {
	if strings.TrimSpace(c.Reason) == "" {
		return errors.New("the reason is empty")
	}
	return driver.CheckName(c.Name)
}

// Run takes the name away from its holders.
func (c *breakCmd) Run(a *app) error {
	var token int64
	err := a.with(func(ctx context.Context, engine driver.Engine) (err error) {
		token, err = c.take(ctx, a, engine)
		return err
	})
	switch {
	case token != 0: // even if a process still keeps the lock, the token shuts it out
		return errors.Join(a.printToken(token, broken{c.Name, token}), err)
	case errors.Is(err, driver.ErrNotHeld):
		return &exitError{code: exitNotHeld, err: fmt.Errorf("%s is not held\ntry: fencelock ls", termtext.Word(c.Name))}
	}
	return err
}

// take breaks the lock, by force where that was asked for. A token beside an error means
// that the lock is broken, and that a holder has not let go yet.
func (c *breakCmd) take(ctx context.Context, a *app, engine driver.Engine) (int64, error) {
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

// force lists what else is taken away, and then takes it: the connection of a holder may
// hold other names, and the holder of all is told nothing.
func (c *breakCmd) force(ctx context.Context, a *app, f engineurl.Forcer) (int64, error) {
	names, err := f.NamesOnSameSession(ctx, c.Name)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		a.say("if the connection must be ended, this lock on it ends too: %s", termtext.Word(name))
	}
	return f.BreakByForce(ctx, c.Name, c.Reason)
}

// broken is what break --json prints; docs/cli-json.md documents it.
type broken struct {
	Name  string `json:"name"`
	Token int64  `json:"token"` // greater than that of every holder before
}
