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

	"github.com/alecthomas/kong"
)

// Exit codes the commands choose themselves; those of run and elect are with exitError.
const (
	exitUsage  = 64
	exitConfig = 78
)

// cli is the command line as kong parses it.
type cli struct {
	URL     string `env:"FENCELOCK_URL" placeholder:"URL" help:"Where the locks are, such as file:///path; by default a directory of your own."`
	JSON    bool   `name:"json" help:"Print one JSON object a line."`
	Verbose bool   `short:"v" help:"Say more on stderr."`

	Run        runCmd        `cmd:"" group:"use" help:"Run a command while holding a lock."`
	Elect      electCmd      `cmd:"" group:"use" help:"Keep a command running while this process is the leader."`
	Ls         lsCmd         `cmd:"" group:"see" help:"List the locks that are held or waited for."`
	Status     statusCmd     `cmd:"" group:"see" help:"Show who holds and who waits for one lock."`
	Watch      watchCmd      `cmd:"" group:"see" help:"Follow what happens to locks, a line for each event."`
	Break      breakCmd      `cmd:"" group:"see" help:"Take a lock away from its holders and print the new token."`
	Resize     resizeCmd     `cmd:"" group:"see" help:"Change how many may hold a lock that is shared with a limit."`
	Init       initCmd       `cmd:"" group:"see" help:"Give an engine what it needs once: PostgreSQL a schema, Redlock new servers."`
	Doctor     doctorCmd     `cmd:"" group:"see" help:"Check an engine's configuration against what locks promise."`
	Completion completionCmd `cmd:"" group:"more" help:"Print a completion script for bash, zsh or fish."`
	Version    versionCmd    `cmd:"" group:"more" help:"Print the version."`
}

const description = `Locks that many processes share, with fencing tokens.

  fencelock run nightly -- ./backup.sh     one backup at a time
  fencelock run -n nightly -- ./backup.sh  or exit 75 at once
  fencelock elect billing -- ./billing     one leader, and the others stand by
  fencelock ls                             who holds what

Exit codes: the command's own, 128+n if it died of signal n, 75 busy, 76 lock
lost, 64 usage, 69 engine unreachable, 70 doctor found something broken, 71
something of fencelock's own did not start, 78 bad configuration, a missing
right or a refused login.`

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

// perform is the whole command: it parses args, does what they ask, tells people what
// went wrong, and returns an error that stands for the exit code.
func perform(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var c cli
	helped := false
	parser := newParser(&c, stdout, stderr, func(int) { helped = true })
	if len(args) == 0 {
		shortHelp(stderr, parser)
		return &exitError{code: exitUsage}
	}
	parsed, err := parser.Parse(args)
	switch {
	case helped:
		return nil
	case err != nil:
		err = usageError(err)
		complain(stderr, err)
		return err
	}
	a := &app{
		ctx: context.Background(), stdin: stdin, stdout: stdout, stderr: stderr,
		url: c.URL, json: c.JSON, verbose: c.Verbose,
	}
	err = parsed.Run(a, parser)
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

// newParser builds the parser. exit is called in place of os.Exit, by --help.
func newParser(c *cli, stdout, stderr io.Writer, exit func(int)) *kong.Kong {
	return kong.Must(c,
		kong.Name("fencelock"),
		kong.Description(description),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, NoAppDescFormat: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "use", Title: "Use locks:"},
			{Key: "see", Title: "See and manage locks:"},
			{Key: "more", Title: "More:"},
		}),
	)
}

// shortHelp tells in a few lines what there is, for a bare "fencelock".
func shortHelp(w io.Writer, parser *kong.Kong) {
	fmt.Fprintln(w, "usage: fencelock COMMAND [ARGUMENTS]")
	for _, cmd := range parser.Model.Leaves(true) {
		fmt.Fprintf(w, "  %-11s %s\n", cmd.Name, cmd.Help)
	}
	fmt.Fprintln(w, "try: fencelock run nightly -- ./backup.sh, or fencelock --help")
}

// usageError turns what the parser says into a refusal that names the help page.
func usageError(err error) error {
	page := "fencelock"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		page = parse.Context.Selected().FullPath()
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
