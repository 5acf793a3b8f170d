//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/internal/watch"
)

// listInterval is the least time between two lists of ls --watch.
const listInterval = time.Second

// lsCmd is the verb ls.
type lsCmd struct {
	Prefix string // "" lists all locks
	Sort   string // a key of sortings
	Scan   bool   // look through all keys of a Redis
	Watch  bool   // list again and again
}

func newLs(a *App) *cobra.Command {
	c := new(lsCmd)
	cmd := &cobra.Command{
		Use: "ls [flags] [PREFIX]", GroupID: SeeLocks, Short: "List the locks that are held or waited for.", SuggestFor: []string{"list", "top", "live"},
		Long: `Prints a line for each holder. A lock that has only waiters has the holder "-". SINCE is in UTC. TTL is the rest of the lease, or "none" for a lock that ends with its process. MAX is the rest of a maximum hold, "over" after its end, or "-" if there is none. A limit follows the mode: shared/3 is a holder of a lock with limit 3, and shared:2/3 one with weight 2. WAIT is how long the oldest of the WAITERS has waited.

If a lock could not be read completely, its line says so. If this user may not read some names, ls prints the others and exits with 78.`,
		Example: `fencelock ls --sort wait
fencelock ls invoice: --json | jq -r .name`,
		Annotations: map[string]string{argumentRows: Table([]Row{prefixRow})},
		Args:        Arguments(&c.Prefix), ValidArgsFunction: a.lockNames, PreRunE: Checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().StringVar(&c.Sort, "sort", "name", "`ORDER` of the names: name, wait (the longest wait first) or age (the oldest holder first).")
	Offer(cmd, "sort", "name", "wait", "age")
	cmd.Flags().BoolVar(&c.Watch, "watch", false, "List again every second, or less often if that takes more than a tenth of the time. INT or TERM ends it with 0. For events as JSON, use fencelock watch.")
	cmd.Flags().BoolVar(&c.Scan, "scan", false, "On Redis: search all keys instead of the index of names. This also finds locks of other programs, and takes longer.")
	return cmd
}

// sortings are the times by which locks are sorted, by value of --sort. What has not begun comes last, and
// locks that are equal stay in the order of names.
var sortings = map[string]func(driver.Status) time.Time{
	"name": func(driver.Status) time.Time { return time.Time{} },
	"wait": waitsSince,
	"age":  heldSince,
}

// check validates the flags.
func (c *lsCmd) check() error {
	if sortings[c.Sort] == nil {
		return fmt.Errorf("--sort %s: an order is name, wait or age", termtext.Word(c.Sort))
	}
	return nil
}

// Run prints the locks with the prefix.
func (c *lsCmd) Run(a *App) error {
	if c.Watch {
		return c.watch(a)
	}
	list, err := ask(a, c.list)
	refreshMaxHolds(list)
	if len(list) == 0 && err == nil {
		a.detail("no lock is held or waited for")
	}
	return cmp.Or(printList(a, list, viewOf, lockTable), err) // even with an error, list has the names that could be read
}

// list lists the locks in the order that is wanted. Locker.List cannot ask for a scan; engines
// without an index list everything anyway.
func (c *lsCmd) list(ctx context.Context, engine driver.Engine) (list []fencelock.Status, err error) {
	if lister, ok := engine.(driver.Lister); ok && c.Scan {
		list, err = lister.List(ctx, driver.Query{Prefix: c.Prefix, Scan: true})
	} else {
		list, err = fencelock.New(engine, nil).List(ctx, c.Prefix)
	}
	since := sortings[c.Sort]
	sort.SliceStable(list, func(i, j int) bool { return compareBegin(since(list[i]), since(list[j])) < 0 })
	return list, err
}

// heldSince returns when the oldest holder acquired the lock. It is zero if nobody is known to hold
// it.
func heldSince(s driver.Status) time.Time {
	return earliest(s.Holders, func(h driver.Holder) time.Time { return h.Since })
}

// waitsSince returns when the waiter that has waited longest joined the queue. It is zero if nobody
// waits.
func waitsSince(s driver.Status) time.Time {
	return earliest(s.Waiters, func(w driver.Waiter) time.Time { return w.Since })
}

// earliest returns the earliest of the times that are not zero, or zero.
func earliest[T any](list []T, since func(T) time.Time) (first time.Time) {
	for _, x := range list {
		if t := since(x); compareBegin(t, first) < 0 {
			first = t
		}
	}
	return first
}

// compareBegin compares two times. What has not begun, at the zero time, comes last.
func compareBegin(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// watch prints the locks again and again, below the time of each list. After the first list, it
// reports errors and continues.
func (c *lsCmd) watch(a *App) error {
	if a.json {
		return &misuse{errors.New("--watch prints no JSON"), "fencelock watch --json"}
	}
	OutliveReaders()
	return a.untilEnded(a.Context, func(ctx context.Context, engine driver.Engine) error {
		for first := true; ; first = false {
			asked := time.Now()
			list, err := c.list(ctx, engine)
			now := time.Now()
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && list == nil && first:
				return err
			case err != nil:
				a.Say("%v", err)
			}
			if err == nil || list != nil {
				text := cmp.Or(lockTable(list), "no lock is held or waited for\n")
				if err := a.Print(nil, fmt.Sprintf("%s\n%s\n", stamp(now), text)); errors.Is(err, syscall.EPIPE) {
					return nil
				} else if err != nil {
					return err
				}
			}
			if !retry.Sleep(ctx, watch.Pause(listInterval, now.Sub(asked))) {
				return nil
			}
		}
	})
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
			rows = append(rows, lockRow(s, 1, "-\t-\t"+leftOr(s.NotBefore, time.Until)+"\t-\t-", ""))
		}
	}
	return columns("NAME\tMODE\tHOLDER\tSINCE\tTTL\tMAX\tTOKEN\tWAITERS\tWAIT\tNOTE", rows)
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
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s", termtext.Word(s.Name), modeLimit(s, weight), holder, len(s.Waiters), leftOr(waitsSince(s), time.Since), note)
}

// leftOr formats the time from now until t, or since then, or returns "-" if t is zero. It is at least "0s",
// since the server's clock may differ from ours.
func leftOr(t time.Time, distance func(time.Time) time.Duration) string {
	if t.IsZero() {
		return "-"
	}
	return left(max(distance(t), time.Millisecond))
}
