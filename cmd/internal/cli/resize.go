//go:build unix

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// resizeCmd is the verb resize.
type resizeCmd struct {
	Name  string
	Limit int // at least 1
}

func newResize(a *App) *cobra.Command {
	c := new(resizeCmd)
	var limit string
	return &cobra.Command{
		Use: "resize [flags] NAME LIMIT", GroupID: SeeLocks, Short: "Change the limit of a shared lock.",
		Long: `Sets the limit of a name that is used with "run --limit". It replaces the --limit that all processes give. Holders stay, even if they are too many now. Waiters that fit the new limit get the lock at once. The server keeps the limit at least as long as the last token of the name.`,
		Example: `fencelock run --limit 3 seats -- ./work
fencelock resize seats 5`,
		Annotations: map[string]string{argumentRows: Table([]Row{nameRow, {"LIMIT", "The new limit: how many holders, or how much weight in total."}})},
		Args:        Arguments(&c.Name, &limit), ValidArgsFunction: a.lockNames,
		PreRunE: Checked(func() (err error) {
			if c.Limit, err = parseNumber(limit); err != nil {
				return err
			}
			return driver.CheckResize(c.Name, c.Limit)
		}),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
}

// Run sets the limit. Like chmod, it prints nothing on success, except with --json or --verbose.
func (c *resizeCmd) Run(a *App) error {
	err := a.with(func(ctx context.Context, engine driver.Engine) error {
		return fencelock.New(engine, nil).Resize(ctx, c.Name, c.Limit)
	})
	if err != nil {
		return err
	}
	a.detail("the limit of %q is now %d", c.Name, c.Limit)
	return a.Print(resized{c.Name, c.Limit}, "")
}

// resized is what resize --json prints. docs/cli-json.md documents it.
type resized struct {
	Name  string `json:"name"`
	Limit int    `json:"limit"`
}
