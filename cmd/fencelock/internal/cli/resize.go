//go:build unix

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// resizeCmd changes a limit.
type resizeCmd struct {
	Name  string
	Limit int // at least 1
}

// newResize returns the verb resize.
func newResize(a *app) *cobra.Command {
	c := new(resizeCmd)
	var limit string
	return &cobra.Command{
		Use: "resize [flags] NAME LIMIT", GroupID: seeLocks, Short: "Change how many may hold a lock that is shared with a limit.",
		Long: `Sets the limit of a name that is held with "run --limit", for everybody and from now on; it takes the place of the --limit they give. Holders stay, even if they are too many now, and waiters who fit get in at once. The engine forgets the new limit only when it forgets the name's last token, long after anybody used it.`,
		Example: `fencelock run --limit 3 seats -- ./work
fencelock resize seats 5`,
		Annotations: map[string]string{argumentRows: table([]explained{nameRow, {"LIMIT", "How many holders, or how much weight, from now on."}})},
		Args:        arguments(&c.Name, &limit), ValidArgsFunction: a.lockNames,
		PreRunE: checked(func() (err error) {
			if c.Limit, err = parseNumber(limit); err != nil {
				return err
			}
			return driver.CheckResize(c.Name, c.Limit)
		}),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
}

// Run sets the limit. It prints nothing without --json, as chmod does.
func (c *resizeCmd) Run(a *app) error {
	err := a.with(func(ctx context.Context, engine driver.Engine) error {
		return fencelock.New(engine, nil).Resize(ctx, c.Name, c.Limit)
	})
	if err != nil {
		return err
	}
	a.detail("the limit of %q is %d now", c.Name, c.Limit)
	return a.print(resized{c.Name, c.Limit}, "")
}

// resized is what resize --json prints; docs/cli-json.md documents it.
type resized struct {
	Name  string `json:"name"`
	Limit int    `json:"limit"`
}
