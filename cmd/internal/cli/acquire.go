//go:build unix

package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// acquireCmd is the verb acquire. It starts this program again as a keeper, which acquires the
// lock, reports it and holds it.
type acquireCmd struct {
	ifBusy
	sharing
	TTL     time.Duration
	MaxHold time.Duration
	WithPID int
	Detach  bool
	Signal  string
	Note    string
	Exports bool

	Name   string
	signal unix.Signal // of Signal; set by check
}

func newAcquire(a *App) *cobra.Command {
	c := new(acquireCmd)
	cmd := &cobra.Command{
		Use: "acquire [flags] NAME", GroupID: useLocks, Short: "Acquire a lock that outlives this command.",
		Long: `Prints the fencing token and a handle of the lock, and leaves a process behind that holds it, the keeper. The lock ends with "fencelock release HANDLE", when the time of --max-hold is over, with the process of --with-pid, or when the keeper of a lock with --detach is killed.

If the lock is lost, the keeper sends --signal to the process of --with-pid. If the keeper is killed, a second process sends it; on files the lock then stays taken until the process has ended, elsewhere until the lease expires. If the time of --max-hold is over, or if the keeper gets TERM, it also sends the signal, and releases the lock when the process has ended, or at most 5 seconds later. A lock that is acquired in a command of fencelock run, elect or once ends with that command at the latest, before the lock of the command is released. (On systems other than Linux it does not.) Prefer "fencelock run", which ends every process of its command before another process can get the lock.`,
		Example: `fencelock acquire nightly --max-hold 1h --detach
vars=$(fencelock acquire -x nightly --max-hold 1h --with-pid $$) || exit
eval "$vars"
fencelock release "$FENCELOCK_HANDLE"`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{nameRow}),
			ExitCodes: Table([]Row{
				{"71", "fencelock could not start the keeper"},
				{"74", "stdout could not be written, and the lock was released"},
				{"75", "the lock is busy, or the time of -w was over (-E changes this)"},
				{"128+n", "signal n arrived during the wait"},
			}),
		},
		Args: Arguments(&c.Name), ValidArgsFunction: a.lockNames, PreRunE: Checked(c.check),
		RunE: func(*cobra.Command, []string) error {
			switch os.Getenv(keeperVariable) {
			case "":
				return c.startKeeper(a)
			case guardOfKeeper:
				return c.guard()
			}
			return c.keep(a)
		},
	}
	c.flags(cmd)
	return cmd
}

func (c *acquireCmd) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	atLeast(f, &c.MaxHold, "max-hold", positive, "Release the lock after `DURATION`. Required.")
	_ = cmd.MarkFlagRequired("max-hold")
	Number(f, &c.WithPID, "with-pid", 1, "Release the lock when the process `PID` ends. In a shell, $$ is the shell.")
	f.BoolVar(&c.Detach, "detach", false, "Hold the lock for no process in particular.")
	f.BoolVarP(&c.Exports, "exports", "x", false, "Print shell commands that set FENCELOCK_NAME, FENCELOCK_TOKEN, FENCELOCK_OWNER and FENCELOCK_HANDLE. If there is no lock, print one that fails with the exit code.")
	c.ifBusy.flags(cmd, "Do not wait: exit with 75 if the lock is held.",
		"Wait at most `DURATION`, then exit with 75. 0 means -n.",
		"Exit code if the lock is busy.")
	c.sharing.flags(f)
	Duration(f, &c.TTL, "ttl", defaultTTL, "Lease: how long the lock stays taken if the keeper vanishes.")
	f.StringVar(&c.Signal, "signal", "TERM", "`NAME` of the signal to send to the process of --with-pid.")
	Offer(cmd, "signal", "TERM", "INT", "HUP", "USR1", "USR2", "KILL")
	f.StringVar(&c.Note, "note", "", "`TEXT` that ls, status and waiting processes show.")
}

// check validates the flags.
func (c *acquireCmd) check() (err error) {
	if c.signal, err = signalOf(c.Signal); err != nil {
		return err
	}
	if c.Detach == (c.WithPID != 0) {
		return errors.New("write one of --with-pid PID, to release the lock when that process ends, and --detach")
	}
	return cmp.Or(driver.CheckName(c.Name), c.ifBusy.check(), c.sharing.check(), checkTTL(c.TTL))
}

// keeperVariable is set in the environment of a keeper, and is guardOfKeeper in that of a guard.
const (
	keeperVariable = "FENCELOCK_KEEPER"
	guardOfKeeper  = "guard"
)

// acquireView is what acquire --json prints, and what a keeper reports on its stdout. docs/cli-json.md documents it.
type acquireView struct {
	Name   string `json:"name"`
	Token  int64  `json:"token"`
	Owner  string `json:"owner"`
	Handle string `json:"handle"`
	PID    int    `json:"pid"` // of the keeper
}

// withoutURL returns args without --url, since all users of the host can read the arguments of the
// keeper as long as it lives.
func withoutURL(args []string, url string) (rest []string) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--url="+url:
		case args[i] == "--url" && i+1 < len(args) && args[i+1] == url:
			i++
		default:
			rest = append(rest, args[i])
		}
	}
	return rest
}

// startKeeper starts the keeper, waits for its report and prints it.
func (c *acquireCmd) startKeeper(a *App) error {
	self, err := supervise.OwnProgram()
	if err != nil {
		return err
	}
	supervise.KeepFiles() // the keeper must not hold what this process inherited, such as the end of a pipe
	cmd := exec.Command(self, withoutURL(os.Args[1:], a.URL)...)
	cmd.Args[0] = os.Args[0]
	cmd.Env, cmd.Stderr = append(os.Environ(), keeperVariable+"=1", urlVariable+"="+a.URL), fileOf(a.Stderr)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	answer, err := cmd.StdinPipe()
	report, err2 := cmd.StdoutPipe()
	if err := cmp.Or(err, err2); err != nil {
		return Exit(exitStart, err)
	}
	OutliveReaders() // the keeper must learn that nobody has read the handle
	signals := make(chan os.Signal, 1)
	supervise.Notify(signals, supervise.EndSignals...)
	if err := cmd.Start(); err != nil {
		return Exit(exitStart, err)
	}
	passed := make(chan os.Signal, 1)
	go func() { // ends when there is a lock, or with the process
		var last os.Signal
		for s := range signals {
			last = s
			_ = cmd.Process.Signal(s) // it may have ended
		}
		passed <- last
	}()
	var k acquireView
	if json.NewDecoder(bufio.NewReader(report)).Decode(&k) != nil {
		_ = cmd.Wait() // it has said why there is no lock
		return c.exitOf(cmd.ProcessState)
	}
	signal.Stop(signals) // from now on a signal ends this process, and thereby the keeper
	close(signals)
	if s := <-passed; s != nil { // the keeper would release a lock whose handle was printed
		_ = answer.Close()
		_ = cmd.Wait()
		return gaveUp(s)
	}
	if err := a.Print(k, c.text(k)); err != nil {
		_ = answer.Close() // nobody knows the handle, so the keeper releases the lock
		_ = cmd.Wait()
		return err
	}
	_, err = answer.Write([]byte("\n"))
	return err
}

// exitOf returns the exit code of a keeper without a lock as an error.
func (c *acquireCmd) exitOf(state *os.ProcessState) error {
	status := state.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled():
		return endedBySignal(status.Signal())
	case status.ExitStatus() == 0 && c.Conflict == 0: // busy
		return nil
	}
	return Exit(cmp.Or(status.ExitStatus(), exitStart), nil)
}

// text is what acquire prints without --json.
func (c *acquireCmd) text(k acquireView) string {
	if !c.Exports {
		return fmt.Sprintf("%d %s\n", k.Token, k.Handle)
	}
	return fmt.Sprintf("export %s=%s %s=%d %s=%s %s=%s\n", nameVariable, termtext.ShellQuote(k.Name), tokenVariable, k.Token,
		ownerVariable, k.Owner, handleVariable, termtext.ShellQuote(k.Handle))
}

const handleVariable = "FENCELOCK_HANDLE"

// failEval prints the command of acquire -x without a lock. Otherwise a script that evaluates the
// output without a look at the exit code would have nothing to do and go on without the lock. It
// does so if fencelock is missing or is killed, so help and pages show two steps. The words of a
// wrong command line may not have been parsed.
func (a *App) failEval(cmd *cobra.Command, words []string, code int) {
	exports := cmd.Flags().Lookup("exports")
	if exports != nil && (exports.Changed || slices.Contains(words, "-x") || slices.Contains(words, "--exports")) && !a.json && code != 0 {
		fmt.Fprintf(a.stdout, "sh -c 'exit %d'\n", code) // also for fish, which has no subshells
	}
}

// busy gives a refusal the exit code of --conflict-exit-code, and a hint.
func (c *acquireCmd) busy(err error) error {
	if !errors.Is(err, driver.ErrHeld) {
		return err
	}
	wait := 30 * time.Second
	if !c.atOnce() {
		wait = 2 * c.Wait
	}
	return Exit(c.Conflict, fmt.Errorf("%w\ntry: -w %v, or fencelock status %s", err, wait, termtext.ShellWord(c.Name)))
}

// grace is how long the process of --with-pid may work after the signal.
func (c *acquireCmd) grace() time.Duration {
	if c.Detach {
		return 0
	}
	return min(5*time.Second, c.TTL/3)
}

// watch returns the process of --with-pid. With --detach it never ends.
func (c *acquireCmd) watch() (*otherProcess, error) {
	if c.Detach {
		return &otherProcess{}, nil
	}
	return watchProcess(c.WithPID)
}
