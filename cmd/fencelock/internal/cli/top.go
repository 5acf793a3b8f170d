//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/top"
	"github.com/fencelock/fencelock/driver"
)

// topCmd is the verb top.
type topCmd struct{ Prefix string }

func newTop(a *app) *cobra.Command {
	c := new(topCmd)
	return &cobra.Command{
		Use: "top [flags] [PREFIX]", GroupID: seeLocks, Short: "Show the locks live on a terminal, the longest wait first.", SuggestFor: []string{"htop", "live", "screen"},
		Long: `Shows who holds and waits for each name, what is left of the leases, and the queue of a name. Keys sort, filter, pause and break locks; ? shows all keys.

top lists the locks every second, or less often if that would take more than a tenth of the time. If the server becomes unreachable, the last list stays on the screen, marked as stale. Exits with 0 at q, Ctrl-C or TERM. NO_COLOR turns colors off.`,
		Example: `fencelock top
fencelock top invoice:`,
		Annotations: map[string]string{
			argumentRows: table([]explained{prefixRow}),
			exitCodes:    table([]explained{{"71", "the terminal cannot be used"}, {"74", "the terminal was closed"}}),
		},
		Args: arguments(&c.Prefix), ValidArgsFunction: a.lockNames,
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
}

// Run shows the screen until the user quits.
func (c *topCmd) Run(a *app) error {
	plain := "fencelock ls --watch"
	switch {
	case a.json:
		return &misuse{errors.New("top prints no JSON"), "fencelock watch --json"}
	case !isTTY(a.stdout):
		return &misuse{errors.New("top needs a terminal, and stdout is not one"), plain}
	case dumb():
		return &misuse{errors.New("top needs a terminal that can move the cursor, and TERM is dumb or not set"), plain}
	}
	var broken []string
	err := a.untilEnded(a.ctx, func(ctx context.Context, engine driver.Engine) error {
		screen, err := top.Open()
		if err != nil {
			return &exitError{code: exitStart, err: err}
		}
		locks := fencelock.New(engine, nil)
		broken, err = top.Run(ctx, screen, top.Config{
			Title: c.title(a), Every: listInterval, Break: locks.BreakOwner,
			List: func(ctx context.Context) ([]fencelock.Status, error) { return locks.List(ctx, c.Prefix) },
		})
		return err
	})
	for _, line := range broken {
		a.say("%s", line)
	}
	if errors.Is(err, top.ErrTerminal) {
		return &exitError{code: exitOutput, err: err}
	}
	return err
}

// title returns what is listed.
func (c *topCmd) title(a *app) string {
	url := cmp.Or(engineurl.Redact(a.url), "locks of this host")
	if c.Prefix != "" {
		url += "  " + c.Prefix + "*"
	}
	return url
}
