//go:build unix

// Package cli implements the command fencelock.
//
// perform runs a command line. cobra parses it with the tree of commands that root.go builds. Each
// verb has a file: a type whose fields are its flags and arguments, a function that returns its
// cobra.Command, and a method Run. To add a verb, add such a file and a line to root.go.
//
// The verbs share these files: app.go opens the engine. arguments.go and flag.go read arguments and
// flags. misuse.go reports a wrong command line. help.go and complete.go print help and
// completions. exit.go maps errors to exit codes. view.go and show.go print. await.go and hold.go
// acquire a lock and run a command under it. command.go has the flags of run, elect and once.
//
// Other packages do what does not depend on a verb: engineurl opens the engine of a URL, supervise
// runs a command and stops it in time, asyncwriter writes without waiting for the reader, and
// termtext prepares text for a terminal.
package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/demo"
	"github.com/fencelock/fencelock/internal/reexec"
)

// A Verb returns a command, which may keep the App until it runs.
type Verb func(*App) *cobra.Command

// Main runs the command line of this process and exits with its exit code. A program can have more
// verbs than those of this package, and jobs for its processes that are this program again.
func Main(jobs map[string]reexec.Job, verbs ...Verb) {
	all := demo.Job()
	maps.Copy(all, jobs)
	reexec.Main(all)
	queue := newStderrQueue(os.Stderr)
	err := perform(os.Args[1:], os.Stdin, os.Stdout, queue, verbs...)
	queue.Flush(lastMessage)
	if exit, ok := errors.AsType[*exitError](err); ok && exit.interrupted {
		dieOfInterrupt()
	}
	os.Exit(exitCode(err))
}

// perform runs a command line and reports an error on stderr. It returns an error that exitCode
// maps to the exit code.
func perform(args []string, stdin io.Reader, stdout, stderr io.Writer, verbs ...Verb) error {
	traced := fencelock.WithTrace(context.Background(), os.Getenv(traceVariable))
	a := &App{Context: traced, stdin: stdin, stdout: dataWriter{stdout}, Stderr: stderr}
	a.log = slog.New(&logPrinter{app: a})
	root := newRoot(a, verbs...)
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	err = cmp.Or(refuse(cmd, err), a.helpFailed)
	printError(stderr, err)
	a.failEval(cmd, args, exitCode(err))
	return err
}

// dieOfInterrupt ends this process by SIGINT, as its command or its wait has ended, so that a shell
// notices the interruption and stops its loop.
func dieOfInterrupt() {
	signal.Reset(os.Interrupt)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // the signal ends us meanwhile
}
