//go:build unix

// Package cli is the command fencelock: its verbs, and what they share.
//
// cli.go performs a command line, which cobra reads by the tree that root.go makes. A verb
// stands in a file of its own: a type with its flags and arguments as fields, a function that
// makes its cobra.Command, and the method Run. A new verb is a file and a line of root.go. What
// verbs share stands beside them: app.go opens the engine, arguments.go and flag.go take what
// was typed, misuse.go says what is wrong with it, help.go and complete.go make help and
// completion of the tree, exit.go turns errors into exit
// codes, view.go and show.go print, await.go and hold.go acquire a lock and run a command under
// it, command.go has the flags of run, elect and once. What knows nothing of verbs is in
// packages of its own: engineurl makes engines of URLs, supervise runs a
// command and ends it in time, termtext makes text fit for a terminal.
package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main performs the command line of this process, and ends it as that has earned.
func Main() {
	speech := newTalk(os.Stderr)
	err := perform(os.Args[1:], os.Stdin, os.Stdout, speech)
	speech.flush(lastMessage)
	if exit, ok := errors.AsType[*exitError](err); ok && exit.interrupted {
		dieOfInterrupt()
	}
	os.Exit(exitCode(err))
}

// perform is the whole command: it reads args, does what they ask, tells people what
// went wrong, and returns an error that stands for the exit code.
func perform(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	a := &app{ctx: context.Background(), stdin: stdin, stdout: dataWriter{stdout}, stderr: stderr}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	err = cmp.Or(refuse(cmd, err), a.helpFailed)
	complain(stderr, err)
	return err
}

// dieOfInterrupt ends us as the command or the wait ended, so that a shell knows that
// a person interrupted it, and stops its loop.
func dieOfInterrupt() {
	signal.Reset(os.Interrupt)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // the signal ends us meanwhile
}
