//go:build unix

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// statusCmd is the verb status.
type statusCmd struct{ Name string }

func newStatus(a *App) *cobra.Command {
	c := new(statusCmd)
	return &cobra.Command{
		Use: "status [flags] NAME", GroupID: SeeLocks, Short: "Show the holders and waiters of one lock.", SuggestFor: []string{"show", "info"},
		Long: `For a lock without holders and waiters it prints "free", or "closed" during a minimum hold. The exit code is 0 in each case.`,
		Example: `fencelock status nightly
fencelock status nightly --json | jq '.holders[].pid'`,
		Annotations: map[string]string{argumentRows: Table([]Row{nameRow})},
		Args:        Arguments(&c.Name), ValidArgsFunction: a.lockNames, PreRunE: checkedName(&c.Name),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
}

// Run prints the holders and waiters of a name. A name without holders and waiters is not an error.
func (c *statusCmd) Run(a *App) error {
	status, err := a.status(c.Name)
	if err != nil {
		return err
	}
	return a.Print(viewOf(status), describe(status))
}

// status returns the holders and waiters of a name.
func (a *App) status(name string) (fencelock.Status, error) {
	status, err := ask(a, func(ctx context.Context, engine driver.Engine) (fencelock.Status, error) {
		return fencelock.New(engine, nil).Status(ctx, name)
	})
	refreshMaxHolds([]fencelock.Status{status})
	return status, err
}

// describe formats a status: the holders, oldest first, then the waiters in the order of the queue.
func describe(s driver.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", termtext.Word(s.Name), modeLimit(s, 1))
	if !s.NotBefore.IsZero() {
		fmt.Fprintf(&b, "  not granted before %s (minimum hold)\n", stamp(s.NotBefore))
	}
	if s.Trouble != nil {
		fmt.Fprintf(&b, "  may have changed: %s\n", termtext.Text(termtext.Line(s.Trouble.Error())))
	}
	for _, h := range s.Holders {
		fmt.Fprintf(&b, "  held by %s since %s%s%s\n", holderPlace(h), stamp(h.Since), lease(h), capped(h))
		fmt.Fprintf(&b, "    token %d, owner %s%s\n", h.Token, termtext.Word(h.Owner), takes(h.Weight))
		if h.Note != "" {
			fmt.Fprintf(&b, "    note  %s\n", termtext.Text(h.Note))
		}
	}
	for _, w := range s.Waiters {
		fmt.Fprintf(&b, "  waiting %d. %s since %s%s\n", w.Position, place(w.Identity), stamp(w.Since), takes(w.Weight))
		if w.Note != "" {
			fmt.Fprintf(&b, "    note  %s\n", termtext.Text(w.Note))
		}
	}
	return b.String()
}

// lease formats the rest of a lease, and the whole lease if it is known.
func lease(h driver.Holder) string {
	switch {
	case h.TTL == 0:
		return ""
	case h.Lease == 0:
		return ", " + left(h.TTL) + " left"
	}
	return ", " + left(h.TTL) + " left of " + left(h.Lease)
}

// capped formats the rest of a maximum hold.
func capped(h driver.Holder) string {
	switch rest := maxLeft(h); rest {
	case "-":
		return ""
	case "over":
		return ", its maximum hold is over"
	default:
		return ", at most " + rest + " more"
	}
}

// takes formats a weight other than 1.
func takes(weight int) string {
	if weight <= 1 {
		return ""
	}
	return fmt.Sprintf(", weight %d", weight)
}
