//go:build unix

package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/pipe"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/ratelimit"
)

// pipeCmd is the verb pipe: a child process that holds locks for the program that started it.
type pipeCmd struct{ Protocol int }

func newPipe(a *App) *cobra.Command {
	c := &pipeCmd{Protocol: pipe.Protocol}
	cmd := &cobra.Command{
		Use: "pipe [flags]", GroupID: useLocks, Short: "Hold locks for a program that asks on stdin in JSON.", SuggestFor: []string{"hold", "stdio", "serve"},
		Long: `A program in any language starts this once, and asks for locks with lines of JSON. The locks end with the input, or with the program. The protocol is on the page docs/pipe.md, and a client for Python is in clients/python.

INT, TERM, HUP and QUIT have no effect, since a terminal or a service manager sends them to this process too while the program still stops its work.`,
		Example: `echo '{"op":"status","id":1,"name":"nightly"}' | fencelock pipe
fencelock pipe --protocol 1`,
		Args: Arguments(), PreRunE: Checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	Number(cmd.Flags(), &c.Protocol, "protocol", 1, "`VERSION` of the protocol that the program speaks.")
	return cmd
}

// check validates the flags.
func (c *pipeCmd) check() error {
	if c.Protocol != pipe.Protocol {
		return fmt.Errorf("--protocol %d: this version of fencelock speaks %d", c.Protocol, pipe.Protocol)
	}
	return nil
}

// Run serves the program until its input ends or it has ended.
func (c *pipeCmd) Run(a *App) error {
	signal.Ignore(unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE)
	if os.Getenv(keeperVariable) == guardOfKeeper {
		pipe.RunGuard(pipe.StdinEnds)
		return nil
	}
	supervise.KeepFiles()
	parent := supervise.Ended(os.Getppid())
	engine, closeEngine, err := a.open(a.Context)
	if err != nil {
		_, _ = a.stdout.Write(pipe.Failed(err, redactLine))
		return err
	}
	var guard *pipe.Guard
	if i, ok := engine.(pipe.Inheritor); ok { // its locks are file descriptors
		guard, err = startGuard(i, []string{os.Args[0], "pipe"}, os.Stdin)
	}
	if err == nil {
		pipe.Serve(a.Context, pipe.Config{
			Engine: engine, Version: thisBuild().Version, In: a.stdin, Out: a.stdout, Parent: parent, Guard: guard,
			Redact: redactLine, Status: func(s driver.Status) any { return viewOf(s) }, Rate: rateOf,
			Rates: sync.OnceValues(func() (driver.RateLimiter, error) { return ratesOf(engine) }),
		})
	}
	return cmp.Or(err, closeEngine())
}

// rateOf parses a rate such as 10/m.
func rateOf(text string) (ratelimit.Limit, error) {
	var l limitCmd
	err := l.setRate(text)
	return l.Rate, err
}

// startGuard starts this program once more as the guard of locks.
func startGuard(engine pipe.Inheritor, args []string, stdin io.Reader) (*pipe.Guard, error) {
	self, err := supervise.OwnProgram()
	if err != nil {
		return nil, err
	}
	guard, err := pipe.StartGuard(engine, func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Args, cmd.Stdin, cmd.Env = args, stdin, append(os.Environ(), keeperVariable+"="+guardOfKeeper)
		return cmd
	})
	if err != nil {
		return nil, Exit(exitStart, fmt.Errorf("the guard of the lock does not start: %w", err))
	}
	return guard, nil
}
