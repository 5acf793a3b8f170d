//go:build unix

package cli

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
)

// onceCmd is the verb once.
type onceCmd struct {
	ifBusy
	RetryFailed bool
	Payload     *string       // nil means the command line
	Retention   time.Duration // how long the outcome is stored
	MaxOutput   int           // bytes to store of each stream
	AcceptCut   bool          // repeat a stdout of which only the beginning was stored

	command
}

// Limits and defaults of what is stored.
const (
	defaultKept   = 24 * time.Hour
	defaultOutput = 64 << 10
	maxOutput     = (driver.MaxRecord - 8<<10) / 2 // both streams and a line of JSON are one record
	maxResult     = driver.MaxRecord - 4<<10
)

func newOnce(a *App) *cobra.Command {
	c := new(onceCmd)
	cmd := &cobra.Command{
		Use: "once [flags] KEY -- CMD [ARG]...", GroupID: useLocks, Short: "Run a command once per key; later calls get its output and exit code.",
		Long: `The first call for a key runs the command. Calls during that run wait for its end. Later calls get the stored output and exit code until the retention is over. A failure is stored too; use --retry-failed to run the command again after one.

The command runs under the lock idempotent/KEY and is stopped before that lock is lost. A run that loses the lock stores no outcome, and the next call runs the command again. A run that fails after fencelock was asked to stop stores none either. If the outcome cannot be stored, the exit code is 69.

The first --max-output bytes of stdout and of stderr are stored. A later call that could repeat only a part of stdout prints that part and exits with 65.

A key belongs to one command line, or to one --payload if that is given. A call with another one is refused with 64, since the stored outcome is that of another command. What the command reads from stdin is not part of the key.`,
		Example: `fencelock once migrate:42 -- ./migrate --to 42
fencelock once -n order:981 -- ./ship 981
fencelock once --retry-failed --retention 720h report:2026-11 -- ./report
fencelock once --payload v1.4.2 deploy:v1.4.2 -- ./deploy --from $HOSTNAME`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{{"KEY", "Identifies the work to do once, such as an order or a migration."}, commandRow}),
			variables:    commandVariables,
			ExitCodes: Table([]Row{
				{"", "the exit code of the command, from this run or the stored one; or one of these:"},
				{"128+n", "the command was killed by signal n, or signal n arrived during the wait"},
				{"65", "only the first --max-output bytes of stdout were stored, and the run exited with 0"},
				{"71", "fencelock could not start its watchdog or get another resource"},
				{"74", "the output could not be written; the outcome is stored, and the same call repeats it"},
				{"75", "another process runs the command, with -n or after -w (-E changes this)"},
				{"76", "the lock was lost while the command ran; this run has no outcome"},
			}),
		},
		ValidArgsFunction: completeCommand(cobra.NoFileCompletions), PreRunE: Checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	c.flags(cmd)
	return cmd
}

// flags adds the flags of once, then those shared with run and elect.
func (c *onceCmd) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	c.ifBusy.flags(cmd, "Do not wait: exit with 75 if another process runs the command.",
		"Wait at most `DURATION` for the run of another process, then exit with 75. 0 means -n.",
		"Exit code if another process runs the command.")
	f.BoolVar(&c.RetryFailed, "retry-failed", false, "If the stored outcome is a failure, run the command again.")
	f.Func("payload", "`TEXT` that identifies the work instead of the command line.", func(s string) error { c.Payload = &s; return nil })
	Duration(f, &c.Retention, "retention", defaultKept, "How long the outcome is stored.")
	c.MaxOutput = defaultOutput
	Number(f, &c.MaxOutput, "max-output", 0, fmt.Sprintf("How many bytes of stdout, and of stderr, to store; at most %d.", maxOutput))
	f.BoolVar(&c.AcceptCut, "accept-cut", false, "Exit with the code of the run, not with 65, if only a part of stdout can be repeated.")
	c.command.flags(cmd)
}

// check validates the flags and sets defaults.
func (c *onceCmd) check() error {
	if err := cmp.Or(c.command.check(), c.ifBusy.check(), driver.CheckName("idempotent/"+c.Name)); err != nil {
		return err
	}
	switch {
	case c.Retention < time.Second || c.Retention > driver.MaxDuration:
		return fmt.Errorf("--retention %v is not between one second and ten years", c.Retention)
	case c.MaxOutput > maxOutput:
		return fmt.Errorf("--max-output %d is not between 0 and %d", c.MaxOutput, maxOutput)
	}
	return nil
}

// payload returns what identifies the work of the key. Each word has its length before it, so that
// different command lines of the same letters differ.
func (c *onceCmd) payload() (p []byte) {
	words := append([]string{"command"}, c.Command...)
	if c.Payload != nil {
		words = []string{"payload", *c.Payload}
	}
	for _, w := range words {
		p = append(binary.BigEndian.AppendUint64(p, uint64(len(w))), w...)
	}
	return p
}

// Run runs the command or repeats its outcome. Its error carries the exit code.
func (c *onceCmd) Run(a *App) error {
	return c.on(a, func(engine driver.Engine, path string) error {
		records, ok := engine.(driver.RecordKeeper)
		if !ok {
			return fmt.Errorf("%w: %s stores no records", driver.ErrUnsupported, engine.Traits().Engine)
		}
		line := newWaitLine(a, c.Name, logEvery)
		jobs := idempotent.New(c.locker(engine, fencelock.Options{OnWait: line.update}), records.Records(),
			&idempotent.Config{Retention: c.Retention, MaxResult: maxResult})
		jobs = jobs.With(idempotent.Options{Payload: c.payload(), Wait: c.Wait, NoWait: c.atOnce(), Again: c.again})
		var run *idempotent.Run
		lock, signals, err := a.await(func(ctx context.Context) (_ *fencelock.Lock, err error) {
			if run, err = jobs.Begin(ctx, c.Name); err != nil {
				return nil, err
			}
			return run.Lock(), nil
		}, nil)
		line.stop()
		if over, ok := errors.AsType[*idempotent.DoneError](err); ok {
			return c.repeat(a, over)
		}
		if err != nil {
			return c.refusal(err)
		}
		return c.perform(a, engine, run, c.under(a, lock, path, signals))
	})
}

// again reports whether a command that has a stored outcome must run again.
func (c *onceCmd) again(over *idempotent.DoneError) bool {
	r, err := decodeOnce(over)
	return c.RetryFailed && err == nil && r.Code != 0
}

// refusal explains who runs the command or has used the key, with a hint.
func (c *onceCmd) refusal(err error) error {
	busy, ok := errors.AsType[*idempotent.InProgressError](err)
	switch {
	case ok:
		hint := fmt.Sprintf("fencelock once -w 30s %s -- ..., or fencelock status %s", termtext.ShellWord(c.Name), termtext.ShellWord(busy.Held.Name))
		return Exit(c.Conflict, fmt.Errorf("%q is in progress: %w\ntry: %s", c.Name, busy.Held, hint))
	case errors.Is(err, idempotent.ErrMismatch):
		return Exit(ExitUsage, fmt.Errorf("%w\ntry: another key, or --payload if command lines may differ", err))
	}
	return err
}

// repeat prints the stored outcome of an earlier run.
func (c *onceCmd) repeat(a *App, over *idempotent.DoneError) error {
	r, err := decodeOnce(over)
	if err != nil {
		return err
	}
	ctx, stop := EndedBySignals(a.Context)
	defer stop()
	readers := newReaders(a)
	for i, kept := range [][]byte{r.stdout, r.stderr} {
		_, _ = readers[i].Write(kept) // it never fails
		readers[i].Close()
	}
	if err := a.deliver(ctx, readers); err != nil {
		return err
	}
	c.sayCut(a, r)
	if a.verbose || isTTY(a.Stderr) {
		a.Say("output of the run of %q by pid %d on %s, which ended at %s", c.Name, over.PID, over.Host, over.Ended.Format(time.RFC3339))
	}
	if r.StdoutCut && r.Code == 0 && !c.AcceptCut {
		return Exit(exitCut, nil)
	}
	return Exit(r.Code, nil)
}

// sayCut reports output that was not stored.
func (c *onceCmd) sayCut(a *App, r onceOutcome) {
	const cut = "%q wrote more to %s than the %d bytes that were stored"
	if r.StdoutCut {
		a.Say(cut, c.Name, "stdout", len(r.stdout))
	}
	if r.StderrCut {
		a.Say(cut, c.Name, "stderr", len(r.stderr))
	}
}

// perform runs the command under its lock and stores the outcome before it releases the lock. It
// stores none if the lock was lost, or if the command failed after a signal asked it to end. It
// waits for the readers of our output last, and only until the next signal.
func (c *onceCmd) perform(a *App, engine driver.Engine, run *idempotent.Run, what supervise.Command) error {
	out, err := newOutput(a, c.MaxOutput)
	if err != nil {
		run.Abandon() // nothing runs
		return Exit(exitStart, err)
	}
	defer out.close()
	what.Output = out.writers()
	process, err := begin(engine, run.Lock(), what)
	if err != nil {
		run.Abandon()
		return err
	}
	end := process.Wait()
	defer process.Close()
	ctx, stop := EndedBySignals(a.Context)
	defer stop()
	stuck := a.stuck(end, run.Lock())
	end = a.late(end, run.Lock())
	out.finish()
	code := codeOf(end)
	if end.Lost || end.Broken || end.Asked && code != 0 {
		err := stuck
		if stuck == nil {
			err = a.verdict(end, releaseLock(run.Lock()))
		}
		ctx, cancel := context.WithTimeout(ctx, lastMessage)
		defer cancel()
		_ = a.deliver(ctx, out.readers()) // err is more important
		return err
	}
	outcome := out.outcome(code)
	unstored := run.Complete(outcome.encode())
	if unstored == nil {
		c.sayCut(a, outcome)
	}
	unread := a.deliver(ctx, out.readers())
	if unstored != nil {
		return fmt.Errorf("the command exited with code %d, but %w", code, unstored)
	}
	return cmp.Or(unread, a.verdict(end, nil))
}
