//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/ratelimit"
)

// limitCmd is the verb limit. It takes an event from a rate and then replaces itself with the
// command. No process has to stay, since a rate needs no release.
type limitCmd struct {
	Rate ratelimit.Limit
	ifBusy
	PassURL bool
	Line    string // for /bin/sh -c, instead of Command

	Name    string
	Command []string // may be empty
}

func newLimit(a *App) *cobra.Command {
	c := new(limitCmd)
	cmd := &cobra.Command{
		Use: "limit [flags] NAME -- CMD [ARG]...", GroupID: useLocks, Short: "Run a command at a limited rate.",
		Long: `All calls with the same NAME share one rate, by the clock of the server. A call that exceeds the rate waits for its turn. Then it becomes the command (exec), or exits with 0 if there is none. Give the same --rate and --burst in all calls.

limit does not bound how many commands run at the same time. Use "fencelock run --limit" for that.`,
		Example: `fencelock limit --rate 10/m partner -- curl https://partner.example/feed
fencelock limit -n --rate 3/h --burst 3 mail:ops -- mail -s alarm ops
fencelock limit --rate 100/s --burst 20 --json api`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{{"NAME", "The name of the rate. A lock of the same name is independent."}, commandRow}),
			ExitCodes: Table([]Row{
				{"", "the exit code of the command, or one of these:"},
				{"128+n", "signal n arrived during the wait"},
				{"75", "the turn would come too late for -n or -w (-E changes this)"},
			}),
		},
		ValidArgsFunction: completeCommand(cobra.NoFileCompletions), PreRunE: Checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	c.flags(cmd)
	return cmd
}

// flags adds the flags. Those that run has too mean the same.
func (c *limitCmd) flags(cmd *cobra.Command) {
	withCommand(cmd, &c.Name, &c.Command)
	f := cmd.Flags()
	f.Func("rate", "`N/TIME`: events per time, such as 100/s, 10/m, 3/h or 5/90s.", c.setRate)
	Offer(cmd, "rate", "1/s", "10/s", "10/m", "100/h")
	_ = cmd.MarkFlagRequired("rate")
	c.Rate.Burst = 1
	Number(f, &c.Rate.Burst, "burst", 1, "How many events may happen at once after a pause.")
	c.ifBusy.flags(cmd, "Do not wait: exit with 75 if the rate is used up.",
		"Exit with 75, at once, if the turn would come later than in `DURATION`. 0 means -n.",
		"Exit code if the turn would come too late.")
	f.BoolVar(&c.PassURL, "pass-url", false, "Set FENCELOCK_URL, which may hold a password, for the command.")
	f.StringVarP(&c.Line, "command", "c", "", "Run `LINE` with /bin/sh -c instead of CMD.")
}

// setRate parses a rate such as 10/m. A unit without a number means one of it.
func (c *limitCmd) setRate(s string) error {
	events, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(events)
	if per != "" && !strings.ContainsAny(per[:1], "0123456789.") {
		per = "1" + per // a unit without a number
	}
	d, err2 := parseDuration(per)
	if !ok || err != nil || err2 != nil || n < 1 || d <= 0 {
		return fmt.Errorf("%q is not a rate such as 10/s or 100/h", s)
	}
	c.Rate.Events, c.Rate.Per = n, d
	return nil
}

// check validates the flags.
func (c *limitCmd) check() (err error) {
	if c.Command, err = commandOf(c.Command, c.Line); err != nil {
		return err
	}
	return cmp.Or(c.ifBusy.check(), driver.CheckName(c.Name))
}

// limitPatience is the timeout of a request to the engine. The wait for a turn is not part of it.
const limitPatience = 5 * time.Second

// Run takes the event, waits for the turn, and replaces this process with the command. If a signal
// ends the wait, Run returns the event. After the wait, Run handles no signals, since they are for
// the command.
func (c *limitCmd) Run(a *App) error {
	path, err := "", error(nil)
	if len(c.Command) > 0 {
		if path, err = supervise.Lookup(c.Command[0]); err != nil {
			return err
		}
	}
	ctx, stop := EndedBySignals(a.Context)
	defer stop()
	err = a.within(ctx, func(engine driver.Engine) error {
		rates, err := ratesOf(engine)
		if err != nil {
			return err
		}
		return c.take(ctx, a, ratelimit.New(rates, c.Name, c.Rate, &ratelimit.Config{Timeout: limitPatience}))
	})
	stop() // first, so that a signal that arrives now is not lost
	if ended := endedBy(ctx); ended != nil {
		return ended // even if the turn has come
	}
	if err != nil || path == "" {
		return err
	}
	return supervise.Exec(path, c.Command, a.environment(c.PassURL)) // only the command is needed from here on
}

// ratesOf returns the rates of an engine. If the engine has none, it returns rates that are stored
// in records of the engine, which cost a read and a write for each take.
func ratesOf(engine driver.Engine) (driver.RateLimiter, error) {
	if rates, ok := engine.(driver.RateLimiter); ok {
		return rates, nil
	}
	if records, ok := engine.(driver.RecordKeeper); ok {
		return ratelimit.OnRecords(records.Records()), nil
	}
	return nil, fmt.Errorf("%w: %s has no rates", driver.ErrUnsupported, engine.Traits().Engine)
}

// take reserves an event and waits for its turn. It fails if the turn is too far away. If the
// wait fails, it returns the event, unless another process has taken some since.
func (c *limitCmd) take(ctx context.Context, a *App, l *ratelimit.Limiter) error {
	r, err := c.reserve(ctx, l)
	limited, tooMany := errors.AsType[*ratelimit.LimitedError](err)
	switch {
	case tooMany && a.json && len(c.Command) == 0:
		err := printJSON(a.stdout, limitAnswer{Name: c.Name, DelayMS: wholeMillis(limited.RetryAfter)})
		return cmp.Or(err, Exit(c.Conflict, nil))
	case tooMany:
		return Exit(c.Conflict, fmt.Errorf("%q is limited to %v; the turn would come in %v", c.Name, limited.Limit, limited.RetryAfter.Round(time.Millisecond)))
	case err != nil:
		return err
	}
	answer := limitAnswer{Name: c.Name, OK: true, Remaining: r.Result().Remaining, DelayMS: wholeMillis(r.Delay())}
	if !retry.Sleep(ctx, r.Delay()) {
		_ = r.Cancel(ctx) // the turn is lost if that fails
		return ctx.Err()
	}
	if a.json && len(c.Command) == 0 {
		return printJSON(a.stdout, answer)
	}
	return nil
}

// reserve reserves a turn that is near enough.
func (c *limitCmd) reserve(ctx context.Context, l *ratelimit.Limiter) (*ratelimit.Reservation, error) {
	if c.Nonblock || c.limited {
		return l.ReserveWithin(ctx, "", 1, c.Wait)
	}
	return l.Reserve(ctx, "")
}

// wholeMillis rounds up to milliseconds.
func wholeMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// limitAnswer is what limit --json prints. docs/cli-json.md documents it.
type limitAnswer struct {
	Name      string `json:"name"`
	OK        bool   `json:"ok"`        // the turn came, after the delay
	Remaining int    `json:"remaining"` // events that are available now
	DelayMS   int64  `json:"delay_ms"`  // how long it took, or would take
}
