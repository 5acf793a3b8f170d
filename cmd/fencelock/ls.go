//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fencelock/fencelock/driver"
)

type lsCmd struct {
	Prefix string
	Scan   bool
}

func (c *lsCmd) verb() *verb {
	return &verb{
		name: "ls", group: seeLocks, short: "List the locks that are held or waited for.",
		args: []arg{prefixArg(&c.Prefix)}, run: c.Run,
		flags: func(f flagSet) {
			f.add("scan", "", boolean(&c.Scan), "Look through all keys of a Redis, not only at names that were held or waited for a while.")
		},
		long: `A line for each holder; a lock that is only waited for has the holder "-". SINCE is in UTC; TTL is what is left of the lease, and "none" is a lock that ends with its process. A limit follows the mode: shared/3 is one holder of three, and shared:2/3 takes two places of the three.

What could not be looked at says so; names that this user may not read are exit code 78, after the rest.`,
		examples: []string{"fencelock ls", "fencelock ls invoice: --json | jq -r .name"},
	}
}

// Run prints every lock with the prefix.
func (c *lsCmd) Run(a *app) error {
	list, failed := a.list(driver.Query{Prefix: c.Prefix, Scan: c.Scan})
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

// list asks the engine who holds and who waits.
func (a *app) list(q driver.Query) (list []driver.Status, err error) {
	ctx, stop := a.interruptible()
	defer stop()
	err = a.with(ctx, func(engine driver.Engine) error {
		lister, ok := engine.(driver.Lister)
		if !ok {
			return unsupported(engine, "list locks")
		}
		list, err = lister.List(ctx, q)
		return err
	})
	return list, err
}

// with opens the engine for as long as fn runs.
func (a *app) with(ctx context.Context, fn func(driver.Engine) error) error {
	engine, closeEngine, err := a.open(ctx)
	if err != nil {
		return err
	}
	err = fn(engine)
	if closing := closeEngine(); err == nil {
		err = closing
	}
	if errors.Is(err, context.Canceled) {
		return &exitError{code: exitSignal + int(syscall.SIGINT), err: errors.New("interrupted"), interrupted: true}
	}
	return err
}

func unsupported(engine driver.Engine, what string) error {
	return &exitError{code: exitConfig, err: fmt.Errorf("%w: %s cannot %s", driver.ErrUnsupported, engine.Traits().Engine, what)}
}

// printTable writes the aligned table; nothing at all for an empty list.
func printTable(w io.Writer, list []driver.Status) error {
	if len(list) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tMODE\tHOLDER\tSINCE\tTTL\tTOKEN\tWAITERS\tNOTE")
	for _, s := range list {
		for _, row := range rows(s) {
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", show(s.Name), row.mode, row.columns, len(s.Waiters), row.note)
		}
	}
	return table.Flush()
}

// row is what the table shows of one holder.
type row struct{ mode, columns, note string }

func rows(s driver.Status) []row {
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

// holderPlace says where a holder lives. A foreign one may have a process of the
// server.
func holderPlace(h driver.Holder) string {
	switch {
	case h.Foreign && h.PID != 0:
		return fmt.Sprintf("foreign:%d", h.PID)
	case h.Foreign:
		return "foreign"
	}
	return place(h.Identity)
}

func noteOr(note, none string) string {
	if note == "" {
		return none
	}
	return showText(note)
}

// troubleOr is why the line may not be so any more, in the place of a note.
func troubleOr(s driver.Status, note string) string {
	if s.Trouble == nil {
		return note
	}
	return "may have changed: " + showText(oneLine(s.Trouble.Error()))
}

// modeLimit is the mode with its limit, such as "shared/3".
func modeLimit(s driver.Status) string {
	if s.Limit > 0 {
		return fmt.Sprintf("%s/%d", modeOf(s), s.Limit)
	}
	return modeOf(s)
}

// modeWeight is modeLimit for one holder: how much of the limit it takes, where
// that is not one.
func modeWeight(s driver.Status, h driver.Holder) string {
	if s.Limit > 0 && h.Weight > 1 {
		return fmt.Sprintf("%s:%d/%d", modeOf(s), h.Weight, s.Limit)
	}
	return modeLimit(s)
}

// closedFor is how long a minimum hold still keeps a name closed.
func closedFor(until time.Time) string {
	if until.IsZero() {
		return "-"
	}
	return left(max(time.Until(until), time.Millisecond))
}
