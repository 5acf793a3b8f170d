//go:build unix

// Command fencelock runs commands under locks that many processes share, and
// shows, follows and breaks those locks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Exit codes the commands choose themselves; those of run and elect are with exitError.
const (
	exitUsage  = 64
	exitConfig = 78
)

// app is what every command works with.
type app struct {
	ctx            context.Context
	stdin          io.Reader
	stdout, stderr io.Writer
	url            string
	json, verbose  bool
}

func main() {
	maybeWatchdog()
	speech := newTalk(os.Stderr)
	err := perform(os.Args[1:], os.Stdin, os.Stdout, speech)
	speech.flush(lastMessage)
	if exit, ok := errors.AsType[*exitError](err); ok && exit.interrupted {
		dieOfInterrupt()
	}
	os.Exit(exitCode(err))
}

// run is perform, and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return exitCode(perform(args, stdin, stdout, stderr))
}

// perform is the whole command: it reads args, does what they ask, tells people what
// went wrong, and returns an error that stands for the exit code.
func perform(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var l line
	if len(args) == 0 {
		shortHelp(stderr)
		return &exitError{code: exitUsage}
	}
	if args[0] == completeVerb {
		return printCompletions(stdout, args[1:])
	}
	err := l.read(args)
	a := &app{
		ctx: context.Background(), stdin: stdin, stdout: stdout, stderr: stderr,
		url: l.url, json: l.json, verbose: l.verbose,
	}
	switch {
	case err != nil:
		err = l.usageError(err)
	case l.help:
		err = l.printHelp(stdout)
	case l.version:
		err = versionCmd{}.Run(a)
	default:
		err = l.verb.run(a)
	}
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

// usageError turns what is wrong with the command line into a refusal that names the
// help page.
func (l *line) usageError(err error) error {
	page := "fencelock"
	if l.verb != nil {
		page += " " + l.verb.name
	}
	text := redact(strings.ReplaceAll(err.Error(), "\n", " "))
	return &exitError{code: exitUsage, err: fmt.Errorf("%s\ntry: %s --help", text, page)}
}

// userinfo is the part of a URL that may hold a password.
var userinfo = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(//)\S*@`) })

// redact hides the user and password of every URL in s.
func redact(s string) string { return userinfo().ReplaceAllString(s, "${1}redacted@") }

// interruptible returns a context that INT and TERM end.
func (a *app) interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(a.ctx, os.Interrupt, syscall.SIGTERM)
}
