//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// lsCmd lists locks.
type lsCmd struct {
	Prefix string // "" is all
	Scan   bool   // look at all keys, which takes long where there are many
}

// newLs returns the verb ls.
func newLs(a *app) *cobra.Command {
	c := new(lsCmd)
	cmd := &cobra.Command{
		Use: "ls [flags] [PREFIX]", GroupID: seeLocks, Short: "List the locks that are held or waited for.", SuggestFor: []string{"list"},
		Long: `A line for each holder; a lock that is only waited for has the holder "-". SINCE is in UTC; TTL is what is left of the lease, and "none" is a lock that ends with its process. A limit follows the mode: shared/3 is one holder of three, and shared:2/3 takes two places of the three.

What could not be looked at says so; names that this user may not read are exit code 78, after the rest.`,
		Example: `fencelock ls
fencelock ls invoice: --json | jq -r .name`,
		Annotations: map[string]string{argumentRows: table([]explained{prefixRow})},
		Args:        arguments(&c.Prefix), ValidArgsFunction: a.lockNames,
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().BoolVar(&c.Scan, "scan", false, "Look through all keys of a Redis, not only at names that were held or waited for a while.")
	return cmd
}

// Run prints every lock with the prefix.
func (c *lsCmd) Run(a *app) error {
	list, failed := c.list(a) // some names may have been read, and others not
	if a.json {
		for _, s := range list {
			if err := printJSON(a.stdout, viewOf(s)); err != nil {
				return err
			}
		}
		return failed
	}
	if len(list) == 0 && failed == nil && a.verbose {
		fmt.Fprintln(a.stderr, "fencelock: nothing is held or waited for")
	}
	if err := printTable(a.stdout, list); err != nil {
		return err
	}
	return failed
}

// list asks the engine who holds and who waits. A scan is a thing of one engine, so
// Locker.List cannot ask for it; the others list everything anyway.
func (c *lsCmd) list(a *app) (list []fencelock.Status, err error) {
	err = a.with(func(ctx context.Context, engine driver.Engine) (err error) {
		if lister, ok := engine.(driver.Lister); ok && c.Scan {
			list, err = lister.List(ctx, driver.Query{Prefix: c.Prefix, Scan: true})
		} else {
			list, err = fencelock.New(engine, nil).List(ctx, c.Prefix)
		}
		return err
	})
	return list, err
}

// printTable writes the aligned table; nothing at all for an empty list.
func printTable(w io.Writer, list []driver.Status) error {
	if len(list) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tMODE\tHOLDER\tSINCE\tTTL\tTOKEN\tWAITERS\tNOTE")
	for _, s := range list {
		for _, row := range rowsOf(s) {
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", termtext.Word(s.Name), row.mode, row.columns, len(s.Waiters), row.note)
		}
	}
	return table.Flush()
}

// row is what the table shows of one holder; the name and the waiters are those of the
// lock, and stand in each of its rows.
type row struct{ mode, columns, note string }

// rowsOf returns a row for each holder, and one for a lock that nobody holds.
func rowsOf(s driver.Status) []row {
	if len(s.Holders) == 0 {
		return []row{{modeLimit(s), "-\t-\t" + closedFor(s.NotBefore) + "\t-", troubleOr(s, "-")}}
	}
	out := make([]row, len(s.Holders))
	for i, h := range s.Holders {
		out[i] = row{
			modeWeight(s, h),
			fmt.Sprintf("%s\t%s\t%s\t%d", holderPlace(h), stamp(h.Since), left(h.TTL), h.Token),
			troubleOr(s, noteOr(h.Note, "-")),
		}
	}
	return out
}

// noteOr is what a holder says of itself.
func noteOr(note, none string) string {
	if note == "" {
		return none
	}
	return termtext.Text(note)
}

// troubleOr is why the line may not be so any more, in the place of a note.
func troubleOr(s driver.Status, note string) string {
	if s.Trouble == nil {
		return note
	}
	return "may have changed: " + termtext.Text(termtext.Line(s.Trouble.Error()))
}

// modeWeight is modeLimit for one holder: how much of the limit it takes, where
// that is not one.
func modeWeight(s driver.Status, h driver.Holder) string {
	if s.Limit > 0 && h.Weight > 1 {
		return fmt.Sprintf("%s:%d/%d", modeOf(s), h.Weight, s.Limit)
	}
	return modeLimit(s)
}

// closedFor is how long a minimum hold still keeps a name closed. One that is over by our
// clock may not be by that of the engine, so it is never "none".
func closedFor(until time.Time) string {
	if until.IsZero() {
		return "-"
	}
	return left(max(time.Until(until), time.Millisecond))
}
