//go:build unix

// Package cli is the command fencelock: its verbs, and what they share.
//
// cli.go performs a command line that parse.go has read, by the table in verbs.go. A verb
// stands in a file of its own: a type whose fields are its flags and arguments, with
// the methods verb, which describes it, and Run. Help, man pages and completion know no
// more than these descriptions, so a new verb is a file and a line of the table. What
// verbs share stands below them: app.go opens the engine, exit.go turns errors into exit
// codes, view.go and show.go print, await.go and hold.go acquire a lock and run a command under
// it, command.go has the flags of run and elect. What knows nothing of verbs is in
// packages of its own: engineurl makes engines of URLs, supervise runs a
// command and ends it in time, termtext makes text fit for a terminal.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
)

// Main performs the command line of this process, and ends it as that has earned.
func Main() {
	speech := &talk{out: os.Stderr}
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
	all := allVerbs()
	stdout = dataWriter{stdout}
	if len(args) == 0 {
		shortHelp(stderr, all)
		return &exitError{code: exitUsage}
	}
	if args[0] == completeVerb {
		return printCompletions(stdout, all, args[1:])
	}
	l := line{verbs: all}
	err := l.read(args)
	a := &app{
		ctx: context.Background(), stdin: stdin, stdout: stdout, stderr: stderr,
		url: l.url, json: l.json, verbose: l.verbose, verbs: all,
	}
	switch {
	case err != nil:
		err = usageError(&l, err)
	case l.help: // before all that the verb would need
		err = printHelp(stdout, &l)
	case l.version:
		err = versionCmd{}.Run(a)
	default:
		err = l.verb.run(a)
	}
	complain(stderr, err)
	return err
}

// usageError turns what is wrong with the command line into a refusal that names the
// help page. A URL may be in it.
func usageError(l *line, err error) error {
	try := "fencelock --help"
	if l.verb != nil {
		try = "fencelock " + l.verb.name + " --help"
	}
	if wrong, ok := errors.AsType[*wrongLine](err); ok {
		try = wrong.try
	}
	text := engineurl.Redact(strings.ReplaceAll(err.Error(), "\n", " "))
	return &exitError{code: exitUsage, err: fmt.Errorf("%s\ntry: %s", text, try)}
}

// dieOfInterrupt ends us as the command or the wait ended, so that a shell knows that
// a person interrupted it, and stops its loop.
func dieOfInterrupt() {
	signal.Reset(os.Interrupt)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // the signal ends us meanwhile
}
