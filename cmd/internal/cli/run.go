//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
)

// runCmd is the verb run. Flags that flock(1) has too have the same names.
type runCmd struct {
	ifBusy
	sharing
	Quiet   bool          // print nothing and exit with 0 if the lock is busy
	MinHold time.Duration // how long after an acquisition the lock cannot be acquired again
	Tick    time.Duration // interval of the schedule; 0 is no schedule
	OnLost  string        // terminate or ignore
	Close   bool          // do not wait for processes that the command leaves behind

	command
	tick tickRun
}

func newRun(a *App) *cobra.Command {
	c := new(runCmd)
	cmd := &cobra.Command{
		Use: "run [flags] NAME -- CMD [ARG]...", GroupID: useLocks, Short: "Run a command while holding a lock.", SuggestFor: []string{"exec", "lock"},
		Long: `Waits for the lock, runs the command while holding it, and releases it when the command and every process it started have ended. If the lock is lost, fencelock stops the command before another process can get the lock.

The command includes every process it starts, even in another process group or session. (On systems other than Linux: only its process group.) A small process named lock-watchdog is the parent of the command and kills it if fencelock is killed or frozen.

fencelock cannot kill processes of another user: write "sudo fencelock run", not "fencelock run ... sudo". It does not release the lock while such a process lives, but a lease expires. It cannot stop work that was handed to a service (systemd-run, docker, at). If fencelock and lock-watchdog are killed at the same moment, nothing stops the command. A resource that checks FENCELOCK_TOKEN is safe even then.

A fencelock that the command starts does not get FENCELOCK_URL: without --pass-url or a URL of its own it uses locks of this host.`,
		Example: `fencelock run nightly -- ./backup.sh
fencelock run -n nightly -- ./backup.sh
fencelock run -w 10m --note 'by hand' nightly -- ./backup.sh --full
fencelock run nightly -c 'cd /srv && tar -c data | gzip >/backup/data.tar.gz'
fencelock run --limit 3 builds -- make
fencelock run --tick 1m report -- ./report.sh`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{nameRow, commandRow}),
			variables:    commandVariables,
			ExitCodes: Table([]Row{
				{"", "the exit code of the command, or one of these:"},
				{"128+n", "the command was killed by signal n, or signal n arrived during the wait"},
				{"71", "fencelock could not start its watchdog or get another resource, or its watchdog was killed"},
				{"75", "the lock is busy, or the time of -w was over (-E and -q change this)"},
				{"76", "the lock was lost while the command ran, or before it started"},
				{"124", "the command was stopped because of --max-hold"},
			}),
		},
		ValidArgsFunction: completeCommand(a.lockNames), PreRunE: Checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	c.flags(cmd)
	return cmd
}

// flags adds the flags of run, then those shared with elect and once.
func (c *runCmd) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	c.ifBusy.flags(cmd, "Do not wait: exit with 75 if the lock is held.",
		"Wait at most `DURATION`, then exit with 75. 0 means -n.",
		"Exit code if the lock is busy.")
	f.BoolVarP(&c.Quiet, "quiet-if-busy", "q", false, "If the lock is busy, print nothing and exit with 0.")
	c.sharing.flags(f)
	Duration(f, &c.MinHold, "min-hold", 0, "Keep the name closed for at least this long after the lock was acquired, even if this process dies. fencelock break opens it.")
	atLeast(f, &c.MaxRun, "max-hold", positive, "Stop a command that runs for longer than `DURATION` with --signal, then SIGKILL, release the lock and exit with 124.")
	atLeast(f, &c.Tick, "tick", time.Second, "Run once per tick across all hosts whose crontabs start this job every `DURATION`; exit with 75 if another host has started it. An attempt that ends before the command starts leaves the tick to the next caller, but a host with -n has already skipped it. Must not exceed the shortest interval between two runs: write 12h for a daily job, since a day may have 23 hours.")
	f.StringVar(&c.OnLost, "on-lost", "terminate", "`ACTION` if the lock is lost: terminate the command, or ignore the loss. With ignore, the command also keeps running if fencelock is killed.")
	Offer(cmd, "on-lost", "terminate", "ignore")
	f.BoolVarP(&c.Close, "close", "o", false, "Wait only for the command itself, not for processes it leaves behind, and do not pass the lock's file descriptor to it.")
	c.command.flags(cmd)
}

// check validates the flags and sets defaults.
func (c *runCmd) check() error {
	if err := cmp.Or(c.command.check(), c.ifBusy.check()); err != nil {
		return err
	}
	switch {
	case c.OnLost != "terminate" && c.OnLost != "ignore":
		return fmt.Errorf("--on-lost: %q is not one of terminate, ignore", c.OnLost)
	case c.MinHold < 0:
		return fmt.Errorf("--min-hold %v is negative", c.MinHold)
	}
	return c.sharing.check()
}

// sharing has the flags of verbs that may share a lock.
type sharing struct {
	Shared bool // share the lock
	Limit  int  // of all holders together; 0 is no limit
	Weight int  // share of the limit; 0 means 1
}

func (s *sharing) flags(f *pflag.FlagSet) {
	f.BoolVarP(&s.Shared, "shared", "s", false, "Share the lock with other shared holders.")
	Number(f, &s.Limit, "limit", 1, "Share the lock with at most N holders in total.")
	Number(f, &s.Weight, "weight", 1, "With --limit: count as N holders instead of 1.")
}

// over returns o with the options for sharing.
func (s *sharing) over(o fencelock.Options) fencelock.Options {
	o.Shared = s.Shared || s.Limit > 0 // a limit implies shared
	o.Limit, o.Weight = s.Limit, s.Weight
	return o
}

// check refuses values that make no sense together. A weight above the limit would wait for ever.
func (s *sharing) check() error {
	switch {
	case s.Weight > 0 && s.Limit == 0:
		return errors.New("--weight needs --limit")
	case s.Weight > s.Limit:
		return fmt.Errorf("--weight %d is more than --limit %d, so it could never be granted", s.Weight, s.Limit)
	}
	return nil
}

// ifBusy has the flags of verbs that wait for a lock or a turn.
type ifBusy struct {
	Nonblock bool
	Wait     time.Duration // 0 does not wait if it is given, and waits for ever if not
	Conflict int           // exit code if the lock is busy

	limited bool // Wait is given
}

// flags adds the flags, with the explanations of the verb.
func (b *ifBusy) flags(cmd *cobra.Command, nonblock, wait, conflict string) {
	b.Conflict = exitBusy
	f := cmd.Flags()
	f.BoolVarP(&b.Nonblock, "nonblock", "n", false, nonblock)
	f.FuncP("wait", "w", wait, func(s string) (err error) {
		b.limited = true
		b.Wait, err = parseDuration(s)
		return err
	})
	Offer(cmd, "wait", "10s", "1m", "10m")
	f.VarP(number{&b.Conflict, 0}, "conflict-exit-code", "E", conflict)
}

// atOnce reports whether the verb must not wait.
func (b ifBusy) atOnce() bool { return b.Nonblock || b.limited && b.Wait == 0 }

// from returns the function of locker that acquires a lock and waits as the verb does.
func (b ifBusy) from(locker *fencelock.Locker) func(context.Context, string) (*fencelock.Lock, error) {
	if b.atOnce() {
		return locker.TryAcquire
	}
	return locker.Acquire
}

// check validates the flags.
func (b ifBusy) check() error {
	switch {
	case b.Nonblock && b.limited:
		return errors.New("--nonblock and --wait cannot be used together")
	case b.Wait < 0:
		return fmt.Errorf("--wait %v is negative", b.Wait)
	case b.Conflict < 0 || b.Conflict > 255:
		return fmt.Errorf("the exit code %d is not between 0 and 255", b.Conflict)
	}
	return nil
}

// Run acquires the lock, runs the command and releases the lock. Its error carries the exit code.
func (c *runCmd) Run(a *App) error {
	return c.on(a, func(engine driver.Engine, path string) error {
		line := newWaitLine(a, c.Name, logEvery)
		locker := c.locker(engine, c.sharing.over(fencelock.Options{Wait: c.Wait, MinHold: c.MinHold, OnWait: line.update}))
		lock, signals, err := a.await(c.taker(a, engine, locker), c.tick.finish)
		line.stop()
		if err != nil {
			return c.refusal(err)
		}
		what := c.under(a, lock, path, signals)
		what.IgnoreOrphans, what.IgnoreLoss = c.Close, c.OnLost == "ignore"
		what.Hint = "; with -o it would not wait"
		return c.tick.over(a.hold(engine, lock, what, c.tick.started, c.tick.finish))
	})
}

// taker returns a function that acquires the lock, for a tick if there is one.
func (c *runCmd) taker(a *App, engine driver.Engine, locker *fencelock.Locker) func(context.Context) (*fencelock.Lock, error) {
	take := c.from(locker)
	if c.Tick == 0 {
		return func(ctx context.Context) (*fencelock.Lock, error) { return take(ctx, c.Name) }
	}
	job := cron.New(c.locker(engine, fencelock.Options{}), c.Name, &cron.Config{Skew: c.Tick / 2, Late: c.Tick / 2, Logger: a.log})
	return c.tick.taker(job, c.Tick, cron.Take{Acquire: take, Shared: locker.Options().Shared, AtOnce: c.atOnce(), Wait: c.Wait})
}

// refusal returns why there is no lock, and a hint. Only a held lock counts as busy: an unreachable
// server keeps its exit code even with -q, or a job that is skipped when busy would be skipped for
// ever.
func (c *runCmd) refusal(err error) error {
	if !errors.Is(err, driver.ErrHeld) {
		return err
	}
	if c.Quiet {
		return nil
	}
	if skipped, ok := errors.AsType[*cron.SkippedError](err); ok {
		return Exit(c.Conflict, skipped)
	}
	who := err.Error()
	if held, ok := errors.AsType[*fencelock.HeldError](err); ok {
		who = held.Error()
	}
	wait := "fencelock run -w 30s"
	if !c.atOnce() {
		who += fmt.Sprintf("; gave up after %v", c.Wait)
		wait = fmt.Sprintf("fencelock run -w %v", 2*c.Wait)
	}
	hint := fmt.Sprintf("%s %s -- ..., or fencelock status %[2]s", wait, termtext.ShellWord(c.Name))
	return Exit(c.Conflict, fmt.Errorf("%s\ntry: %s", who, hint))
}
