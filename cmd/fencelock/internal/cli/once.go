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
	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
)

// onceCmd runs a command once for each key, and gives its output and exit code to whoever
// asks again.
type onceCmd struct {
	ifBusy
	RetryFailed bool
	Payload     *string       // nil is the command line
	Retention   time.Duration // of the outcome
	MaxOutput   int           // bytes of each stream

	command
}

// What is kept of an outcome, if nothing else is said.
const (
	defaultKept   = 24 * time.Hour
	defaultOutput = 64 << 10
	mostOutput    = (driver.MaxRecord - 8<<10) / 2 // both streams and a line about them are one result
	mostResult    = driver.MaxRecord - 4<<10
)

// newOnce returns the verb once.
func newOnce(a *app) *cobra.Command {
	c := new(onceCmd)
	cmd := &cobra.Command{
		Use: "once [flags] KEY -- CMD [ARG]...", GroupID: useLocks, Short: "Run a command once for each key, and repeat its output and exit code.",
		Long: `The first who asks for a key runs the command. Whoever asks while it runs waits for its end. All later ones get its output and its exit code, until the retention is over. A failure is an outcome too. To run the command again, ask with --retry-failed.

The command runs under the lock idempotent/KEY, and is ended before that is lost. A run that was lost has no outcome: the next who asks runs the command again, and what the lost run has to say is refused. Nor has a run that fails after fencelock was told to end. If the outcome cannot be stored, the exit code is 69.

A key stands for one command line, or for one --payload if that is given. Another one is refused with 64, since the answer would be that of another command.`,
		Example: `fencelock once migrate:42 -- ./migrate --to 42
fencelock once -n order:981 -- ./ship 981
fencelock once --retry-failed --retention 720h report:2026-11 -- ./report
fencelock once --payload v1.4.2 deploy:v1.4.2 -- ./deploy --from $HOSTNAME`,
		Annotations: map[string]string{
			argumentRows: table([]explained{{"KEY", "What is to be done once, such as an order or a migration."}, commandRow}),
			variables:    commandVariables,
			exitCodes: table([]explained{
				{"", "the command's own, of this run or of the one before"},
				{"128+n", "the command died of signal n, or signal n came while waiting"},
				{"71", "something of fencelock's own did not start"},
				{"74", "the output could not be written: the outcome is stored, and asking again repeats it"},
				{"75", "somebody else runs the command, for -n or when -w was over; -E changes it"},
				{"76", "the lock was lost while the command ran: it has no outcome of this run"},
			}),
		},
		ValidArgsFunction: completeCommand(cobra.NoFileCompletions), PreRunE: checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	c.flags(cmd)
	return cmd
}

// flags adds those of once, and behind them those it shares with run. --wait, -n and -E
// mean what they mean there.
func (c *onceCmd) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	c.ifBusy.flags(cmd, "Do not wait: exit 75 if somebody else runs the command.",
		"Wait at most this `DURATION` for another's run, then exit 75. A bare number is seconds; 0 is -n.",
		"Exit code if somebody else runs the command.")
	f.BoolVar(&c.RetryFailed, "retry-failed", false, "If the command has failed, run it again, and do not repeat its failure.")
	f.Func("payload", "`TEXT` that the key stands for, in the place of the command line.", func(s string) error { c.Payload = &s; return nil })
	f.DurationVar(&c.Retention, "retention", defaultKept, "How long the outcome is kept.")
	offer(cmd, "retention", 0, "1h", "24h", "720h")
	c.MaxOutput = defaultOutput
	f.Var(number{&c.MaxOutput, 0}, "max-output", fmt.Sprintf("How many bytes of stdout, and of stderr, are kept; at most %d.", mostOutput))
	c.command.flags(cmd)
}

// check finds what the parser cannot, and fills in the defaults.
func (c *onceCmd) check() error {
	if err := cmp.Or(c.command.check(), c.ifBusy.check(), driver.CheckName("idempotent/"+c.Name)); err != nil {
		return err
	}
	switch {
	case c.Retention < time.Second || c.Retention > driver.MaxDuration:
		return fmt.Errorf("the retention %v is not between a second and ten years", c.Retention)
	case c.MaxOutput > mostOutput:
		return fmt.Errorf("--max-output %d is not between 0 and %d", c.MaxOutput, mostOutput)
	}
	return nil
}

// payload is what the key stands for. Each word has its length before it, so that two
// command lines of the same letters differ.
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

// Run runs the command, or repeats its outcome. Its error carries the exit code.
func (c *onceCmd) Run(a *app) error {
	return c.on(a, func(engine driver.Engine, path string) error {
		records, ok := engine.(driver.RecordKeeper)
		if !ok {
			return fmt.Errorf("%w: %s stores no records", driver.ErrUnsupported, engine.Traits().Engine)
		}
		line := newWaitLine(a, c.Name, logEvery)
		jobs := idempotent.New(c.locker(engine, fencelock.Options{OnWait: line.update}), records.Records(),
			&idempotent.Config{Retention: c.Retention, MaxResult: mostResult})
		jobs = jobs.With(idempotent.Options{Payload: c.payload(), Wait: c.Wait.limit, NoWait: c.atOnce(), Again: c.again})
		var run *idempotent.Run
		lock, signals, err := a.await(func(ctx context.Context) (_ *fencelock.Lock, err error) {
			if run, err = jobs.Begin(ctx, c.Name); err != nil {
				return nil, err
			}
			return run.Lock(), nil
		})
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

// again reports whether a command that has ended is run again.
func (c *onceCmd) again(over *idempotent.DoneError) bool {
	r, err := decodeOnce(over)
	return c.RetryFailed && err == nil && r.Code != 0
}

// refusal says who runs the command, or has used the key, and what to do about it.
func (c *onceCmd) refusal(err error) error {
	busy, ok := errors.AsType[*idempotent.InProgressError](err)
	switch {
	case ok:
		hint := fmt.Sprintf("fencelock once -w 30s %s -- ..., or fencelock status %s", termtext.ShellWord(c.Name), termtext.ShellWord(busy.Held.Name))
		return &exitError{code: c.Conflict, err: fmt.Errorf("%q is in progress: %w\ntry: %s", c.Name, busy.Held, hint)}
	case errors.Is(err, idempotent.ErrMismatch):
		return &exitError{code: exitUsage, err: fmt.Errorf("%w\ntry: another key, or --payload if the command line may differ", err)}
	}
	return err
}

// repeat gives the outcome of a run that is over.
func (c *onceCmd) repeat(a *app, over *idempotent.DoneError) error {
	r, err := decodeOnce(over)
	if err != nil {
		return err
	}
	ctx, stop := endedBySignals(a.ctx)
	defer stop()
	readers := newReaders(a)
	readers[0].end(r.stdout)
	readers[1].end(r.stderr)
	if err := a.deliver(ctx, readers); err != nil {
		return err
	}
	for _, s := range []struct {
		name string
		kept []byte
		cut  bool
	}{{"stdout", r.stdout, r.StdoutCut}, {"stderr", r.stderr, r.StderrCut}} {
		if s.cut {
			a.say("%q wrote more to %s than was kept, which is %d bytes", c.Name, s.name, len(s.kept))
		}
	}
	if a.verbose || isTTY(a.stderr) {
		a.say("%q was run by pid %d on %s and ended at %s; that was its output", c.Name, over.PID, over.Host, over.Ended.Format(time.RFC3339))
	}
	return exitWith(r.Code)
}

// perform runs the command under its lock, and stores the outcome before others can
// have the lock. A run that was lost, or that has failed because we were told to end, has
// none. Nobody waits for those who read our output but we, and no longer than until the
// next signal.
func (c *onceCmd) perform(a *app, engine driver.Engine, run *idempotent.Run, what supervise.Command) error {
	out, err := newOutput(a, c.MaxOutput)
	if err != nil {
		run.Abandon() // nothing runs
		return &exitError{code: exitStart, err: err}
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
	ctx, stop := endedBySignals(a.ctx)
	defer stop()
	stuck := a.stuck(end, run.Lock())
	end = a.late(end, run.Lock())
	out.finish()
	code := codeOf(end)
	if end.Lost || end.Broken || end.Asked && code != 0 {
		err := stuck
		if stuck == nil {
			err = a.verdict(end, giveBack(run.Lock()))
		}
		ctx, cancel := context.WithTimeout(ctx, lastMessage)
		defer cancel()
		_ = a.deliver(ctx, out.readers()) // err says more
		return err
	}
	unstored := run.Complete(out.outcome(code).encode())
	unread := a.deliver(ctx, out.readers())
	if unstored != nil {
		return fmt.Errorf("the command ended with code %d, but %w", code, unstored)
	}
	return cmp.Or(unread, a.verdict(end, nil))
}
