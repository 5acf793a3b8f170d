//go:build unix

// Package chaoscli is the verb chaos, which tests an engine under faults. It starts servers and has a
// proxy that breaks connections, so the command fencelock does not have it; fencelock-all does.
package chaoscli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/chaos"
	chaospage "github.com/fencelock/fencelock/cmd/internal/chaos/page"
	"github.com/fencelock/fencelock/cmd/internal/chaos/sandbox"
	"github.com/fencelock/fencelock/cmd/internal/cli"
	"github.com/fencelock/fencelock/internal/reexec"
)

// ShortestTTL is the shortest TTL of the locks of chaos.
const ShortestTTL = 500 * time.Millisecond

// Jobs are those of the worker processes, which are this program again.
func Jobs() map[string]reexec.Job { return chaos.Job(sandbox.Open) }

// chaosCmd is the verb chaos.
type chaosCmd struct {
	Engine   string // whose servers are started; empty for that of the URL
	For      time.Duration
	Seed     uint64
	Workers  int
	Names    int // of each kind of lock
	TTL      time.Duration
	Faults   string
	Rate     int    // acquires in a second; 0 means the default
	Prefix   string // of what the workers use with a URL
	Yes      bool   // a host that is not this one may be used
	Sabotage string
	Out      string // a directory; empty means a new one

	given *pflag.FlagSet
}

// New returns the verb. The program must have the jobs of chaos.Job; see [Jobs].
func New(a *cli.App) *cobra.Command {
	c := new(chaosCmd)
	names, what := chaos.Sabotages()
	var broken []cli.Row
	for _, name := range names {
		broken = append(broken, cli.Row{Word: name, Meaning: what[name]})
	}
	cmd := &cobra.Command{
		Use: "chaos [flags]", GroupID: cli.SeeLocks, Short: "Test an engine under faults.",
		Long: `Starts worker processes that acquire, hold, renew and release locks and write to a guarded counter, kills and freezes them, disturbs their connections, and checks what each of them observed: no two holders, growing fencing tokens, no late writes, every lock free in time.

With --engine, it starts servers of its own and also kills, freezes and restarts them. With a URL, it uses servers that run already. It then disturbs its own processes and connections only, and uses only what begins with a prefix, which it deletes at the end.

A run that could not be carried out has the exit code 69.`,
		Example: `fencelock-all chaos --engine redis --for 20s
fencelock-all chaos --url redis://127.0.0.1:6379
fencelock-all chaos --engine postgres --for 10m --out report
fencelock-all chaos --engine redis --sabotage owner-check`,
		Annotations: map[string]string{
			cli.SabotageRows: cli.Table(broken),
			cli.ExitCodes: cli.Table([]cli.Row{
				{Word: "70", Meaning: "the run found a violation"},
				{Word: "128+n", Meaning: "signal n ended the run, without a violation so far"},
			}),
		},
		Args: cli.Arguments(), PreRunE: cli.Checked(c.check),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Engine != "" && cmd.Flag("url").Changed {
				return cli.Misuse(errors.New("chaos: --engine starts servers and --url uses running ones; write one of them"), "")
			}
			return c.Run(a)
		},
	}
	c.flags(cmd, names)
	return cmd
}

func (c *chaosCmd) flags(cmd *cobra.Command, sabotages []string) {
	f := cmd.Flags()
	f.SortFlags, c.given = false, f
	f.StringVar(&c.Engine, "engine", "", "Start the servers of `ENGINE`: "+strings.Join(chaos.Engines(), ", ")+".")
	cli.Offer(cmd, "engine", chaos.Engines()...)
	cli.Duration(f, &c.For, "for", time.Minute, "How long to test.")
	cli.Offer(cmd, "for", "20s", "1m", "10m", "1h")
	f.Uint64Var(&c.Seed, "seed", 0, "`SEED` of the faults, to repeat them. Default: a random one.")
	c.Workers = 5
	cli.Number(f, &c.Workers, "workers", 2, "How many worker processes compete.")
	c.Names = 3
	cli.Number(f, &c.Names, "names", 2, "How many locks there are of each kind: plain, shared, limited and minimum hold.")
	cli.Duration(f, &c.TTL, "ttl", time.Second, "TTL of the locks.")
	f.StringVar(&c.Faults, "faults", "safe", "`FAULTS`: safe, all (also those that can lead to two holders), or names, separated by commas.")
	f.IntVar(&c.Rate, "rate", 0, "At most `N` acquires per second, of all workers. Default: 200 with a URL (50 on Kubernetes, etcd and NATS), no limit with --engine.")
	f.StringVar(&c.Prefix, "prefix", "", "With a URL: `PREFIX` of all keys and names. It must not be in use. Default: a random one.")
	f.BoolVar(&c.Yes, "yes", false, "With a URL: allow a server on another host.")
	f.StringVar(&c.Out, "out", "", "`DIR` for history.jsonl and the page chaos.html. Default: a new directory for temporary files.")
	f.StringVar(&c.Sabotage, "sabotage", "", "Break the engine, to see that the test finds it. `NAME` is one of those below.")
	cli.Offer(cmd, "sabotage", sabotages...)
}

// check validates the flags.
func (c *chaosCmd) check() error {
	if c.Seed == 0 {
		c.Seed = uint64(1 + rand.IntN(1e6))
	}
	sabotages, _ := chaos.Sabotages()
	switch {
	case c.Engine != "" && !slices.Contains(chaos.Engines(), c.Engine):
		return fmt.Errorf("--engine: %q is not one of %s", c.Engine, strings.Join(chaos.Engines(), ", "))
	case c.Engine != "" && (c.Prefix != "" || c.Yes):
		return errors.New("--prefix and --yes are for servers of a URL; leave them out with --engine")
	case c.Sabotage != "" && !slices.Contains(sabotages, c.Sabotage):
		return fmt.Errorf("--sabotage: %q is not one of %s", c.Sabotage, strings.Join(sabotages, ", "))
	case c.TTL < ShortestTTL || c.TTL > 30*time.Second:
		return fmt.Errorf("--ttl %v is not between 500ms and 30s", c.TTL)
	case c.For < time.Second:
		return fmt.Errorf("--for %v is shorter than 1s", c.For)
	case c.Rate < 0:
		return errors.New("--rate is negative")
	}
	return nil
}

// Run tests the engine and prints what came of it.
func (c *chaosCmd) Run(a *cli.App) error {
	ctx, stop := cli.EndedBySignals(a.Context)
	defer stop()
	cli.OutliveReaders() // what begins with the prefix is deleted although nobody reads the output
	if err := c.tryOut(); err != nil {
		return cli.Exit(cli.ExitOutput, err)
	}
	config := chaos.Config{Engine: c.Engine, Open: sandbox.Open, Workers: c.Workers, Twins: c.Names, TTL: c.TTL, Rate: float64(c.Rate), Sabotage: c.Sabotage, Live: new(chaos.Live)}
	if c.Engine == "" {
		return c.onOwn(ctx, a, config)
	}
	return c.run(ctx, a, config, nil)
}

// run carries out the rounds, cleans up and prints what came of them.
func (c *chaosCmd) run(ctx context.Context, a *cli.App, config chaos.Config, cleanUp func() error) (err error) {
	if config.Faults, err = config.Mix(c.Faults); err != nil {
		return cli.Misuse(fmt.Errorf("chaos: --faults: %w", err), "")
	}
	if !config.Shows() {
		return cli.Misuse(fmt.Errorf("chaos: --sabotage %s is about leases, and locks on files have none", c.Sabotage), "")
	}
	stop := showChaos(a, config.Live)
	report, failed := chaos.Run(ctx, config, c.Seed, c.For)
	stop()
	if cleanUp != nil {
		failed = cmp.Or(failed, cleanUp())
	}
	if report != nil {
		if err := cmp.Or(a.Print(chaosViewOf(report), chaosText(report, c.again(report))), c.write(a, report)); err != nil {
			return err
		}
	}
	switch {
	case report != nil && len(report.Violations()) > 0:
		return cli.Exit(cli.ExitBroken, nil)
	case failed != nil:
		return cli.Exit(cli.ExitUnavailable, failed)
	}
	return cli.Ended(ctx, nil) // the table says how far it got
}

// tryOut creates the directory of the results: a long run should not end without them.
func (c *chaosCmd) tryOut() error {
	if c.Out == "" {
		return nil
	}
	if err := cmp.Or(os.MkdirAll(c.Out, 0o777), unix.Access(c.Out, unix.W_OK)); err != nil {
		return fmt.Errorf("%s: %w", c.Out, err)
	}
	return nil
}

// write writes the history and the page.
func (c *chaosCmd) write(a *cli.App, report *chaos.Report) (err error) {
	dir := c.Out
	if dir == "" {
		dir, err = os.MkdirTemp("", "fencelock-chaos-")
	}
	h := report.Last
	err = cmp.Or(err, create(filepath.Join(dir, "history.jsonl"), h.Write),
		create(filepath.Join(dir, "chaos.html"), func(w io.Writer) error { return chaospage.Write(w, h, c.again(report)) }))
	if err != nil {
		return cli.Exit(cli.ExitOutput, err)
	}
	a.Say("the page of the last %v is %s", h.Length.Round(time.Second), filepath.Join(dir, "chaos.html"))
	return nil
}

// create creates a file.
func create(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// again returns the command that repeats the faults of the last round. It does not contain the URL,
// which may hold a password.
func (c *chaosCmd) again(report *chaos.Report) string {
	command := "fencelock-all chaos"
	if c.Engine == "" {
		command += " --url URL"
	}
	c.given.Visit(func(f *pflag.Flag) {
		if slices.Contains([]string{"engine", "workers", "names", "ttl", "faults", "rate", "sabotage"}, f.Name) {
			command += fmt.Sprintf(" --%s %s", f.Name, f.Value)
		}
	})
	return fmt.Sprintf("%s --for %v --seed %d", command, max(report.Last.Length.Round(time.Second), time.Second), report.Last.Seed)
}
