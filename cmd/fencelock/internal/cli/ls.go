//go:build unix

package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// lsCmd is the verb ls.
type lsCmd struct {
	Prefix string // "" lists all locks
	Scan   bool   // look through all keys of a Redis
}

func newLs(a *app) *cobra.Command {
	c := new(lsCmd)
	cmd := &cobra.Command{
		Use: "ls [flags] [PREFIX]", GroupID: seeLocks, Short: "List the locks that are held or waited for.", SuggestFor: []string{"list"},
		Long: `Prints a line for each holder. A lock that has only waiters has the holder "-". SINCE is in UTC. TTL is the rest of the lease, or "none" for a lock that ends with its process. MAX is the rest of a maximum hold, "over" after its end, or "-" if there is none. A limit follows the mode: shared/3 is a holder of a lock with limit 3, and shared:2/3 one with weight 2.

If a lock could not be read completely, its line says so. If this user may not read some names, ls prints the others and exits with 78.`,
		Example: `fencelock ls
fencelock ls invoice: --json | jq -r .name`,
		Annotations: map[string]string{argumentRows: table([]explained{prefixRow})},
		Args:        arguments(&c.Prefix), ValidArgsFunction: a.lockNames,
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().BoolVar(&c.Scan, "scan", false, "On Redis: search all keys instead of the index of names. This also finds locks of other programs, and takes longer.")
	return cmd
}

// Run prints the locks with the prefix. Locker.List cannot ask for a scan; engines without an index
// list everything anyway.
func (c *lsCmd) Run(a *app) error {
	var list []fencelock.Status
	err := a.with(func(ctx context.Context, engine driver.Engine) (err error) {
		if lister, ok := engine.(driver.Lister); ok && c.Scan {
			list, err = lister.List(ctx, driver.Query{Prefix: c.Prefix, Scan: true})
		} else {
			list, err = fencelock.New(engine, nil).List(ctx, c.Prefix)
		}
		return err
	})
	learnMaxima(list)
	if len(list) == 0 && err == nil {
		a.detail("no lock is held or waited for")
	}
	return cmp.Or(printList(a, list, viewOf, lockTable), err) // even with an error, list has the names that could be read
}

// lockTable returns the table of ls: a row for each holder, and one for a lock without holders.
func lockTable(list []driver.Status) string {
	var rows []string
	for _, s := range list {
		for _, h := range s.Holders {
			holder := fmt.Sprintf("%s\t%s\t%s\t%s\t%d", holderPlace(h), stamp(h.Since), left(h.TTL), maxLeft(h), h.Token)
			rows = append(rows, lockRow(s, h.Weight, holder, h.Note))
		}
		if len(s.Holders) == 0 {
			rows = append(rows, lockRow(s, 1, "-\t-\t"+closedFor(s.NotBefore)+"\t-\t-", ""))
		}
	}
	return columns("NAME\tMODE\tHOLDER\tSINCE\tTTL\tMAX\tTOKEN\tWAITERS\tNOTE", rows)
}

// lockRow returns a row of ls. If the lock may have changed, the note says so.
func lockRow(s driver.Status, weight int, holder, note string) string {
	switch {
	case s.Trouble != nil:
		note = "may have changed: " + termtext.Text(termtext.Line(s.Trouble.Error()))
	case note == "":
		note = "-"
	default:
		note = termtext.Text(note)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%s", termtext.Word(s.Name), modeLimit(s, weight), holder, len(s.Waiters), note)
}

// closedFor returns the rest of a minimum hold. It is at least "0s", since a hold that is over by
// our clock may not be over by the server's.
func closedFor(until time.Time) string {
	if until.IsZero() {
		return "-"
	}
	return left(max(time.Until(until), time.Millisecond))
}
