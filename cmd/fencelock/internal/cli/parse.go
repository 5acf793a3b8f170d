//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
)

// line is a command line that was read. Flags may stand before the verb, after it and
// among its arguments; a verb that runs a command leaves everything alone that follows its
// last argument.
type line struct {
	verbs  []*verb // all there are; given
	verb   *verb   // the one that was asked for, or nil
	flags  flagSet
	global flagSet // those of flags that every verb takes

	url           string // of the flag, and after read that of the environment if there was none
	urlGiven      bool   // by the flag, even if it is empty
	json, verbose bool
	help, version bool
}

// read reads the command line. Its error says what is wrong with it. --help and --version
// end the reading where they stand: who asks for help has a line that is not complete.
func (l *line) read(args []string) error {
	l.begin()
	rest, err := l.parse(args)
	if err != nil || l.help || l.version {
		return err
	}
	if len(rest) == 0 {
		return errors.New("expected a command such as run or ls")
	}
	if l.setVerb(rest[0]); l.verb == nil {
		return l.noVerb(rest)
	}
	if err := l.arguments(rest[1:]); err != nil || l.help || l.version {
		return err
	}
	return l.complete()
}

// begin makes the flags that every verb takes. Those of the verb come when it is known:
// two verbs may mean different things by one letter.
func (l *line) begin() {
	l.flags, l.global = newFlagSet(), newFlagSet()
	l.addGlobal(l.global)
	l.flags.AddFlagSet(l.global.FlagSet)
}

// setVerb finds the verb and adds its flags; verb is nil if there is none of that name.
func (l *line) setVerb(name string) {
	if l.verb = findVerb(l.verbs, name); l.verb != nil && l.verb.flags != nil {
		l.verb.flags(l.flags)
	}
}

// addGlobal adds the flags that every verb takes.
func (l *line) addGlobal(f flagSet) {
	setURL := func(s string) error {
		l.url, l.urlGiven = s, true
		return nil
	}
	f.add("url", "", &option{set: setURL, placeholder: "URL", values: engineurl.Beginnings()},
		"Where the locks are, such as file:///path; by default a directory of your own. ($FENCELOCK_URL)")
	f.add("json", "", boolean(&l.json), "Print one JSON object a line.")
	f.add("verbose", "v", boolean(&l.verbose), "Say more on stderr.")
	f.add("help", "h", boolean(&l.help), "Show this page.")
	f.add("version", "", boolean(&l.version), "Print the version.")
}

// parse reads flags up to the first argument, and returns what is left.
func (l *line) parse(args []string) ([]string, error) {
	err := l.flags.Parse(args)
	return l.flags.Args(), l.flagError(err)
}

// arguments reads what follows the verb: flags and arguments in any order, and for a
// verb that runs a command all of that after its last argument.
func (l *line) arguments(args []string) error {
	given := 0
	for {
		rest, err := l.parse(args)
		if err != nil || l.help || l.version {
			return err
		}
		ended := l.flags.ArgsLenAtDash() >= 0
		if given == len(l.verb.args) && l.verb.runs != nil {
			*l.verb.runs = rest
			return nil
		}
		if len(rest) == 0 {
			return l.missing(given)
		}
		if given == len(l.verb.args) {
			return fmt.Errorf("unexpected argument %s", rest[0])
		}
		if err := l.verb.args[given].set(rest[0]); err != nil {
			return fmt.Errorf("<%s>: %w", strings.ToLower(l.verb.args[given].name), err)
		}
		given++
		args = rest[1:]
		if ended {
			args = append([]string{"--"}, args...)
		}
	}
}

// missing is what is wrong if only so many arguments are given, or nil.
func (l *line) missing(given int) error {
	if given == len(l.verb.args) || l.verb.args[given].optional {
		return nil
	}
	a := l.verb.args[given]
	among := ""
	if len(a.values) > 0 {
		among = ", one of " + strings.Join(a.values, ", ")
	}
	return fmt.Errorf("expected \"<%s>\"%s", strings.ToLower(a.name), among)
}

// complete looks whether all that must be given is there, and makes sense.
func (l *line) complete() error {
	var missing []string
	l.flags.VisitAll(func(f *pflag.Flag) {
		if f.Value.(*option).required && !f.Changed {
			missing = append(missing, longForm(f))
		}
	})
	if len(missing) > 0 {
		return fmt.Errorf("missing flags: %s", strings.Join(missing, ", "))
	}
	if l.urlGiven && l.url == "" { // such as "$LOCKS", which is not set
		return errors.New("--url is empty; name an engine, or leave the flag out for FENCELOCK_URL or locks of this host")
	}
	l.url = l.givenURL()
	if l.verb.check != nil {
		if err := l.verb.check(); err != nil {
			return fmt.Errorf("%s: %w", l.verb.name, err)
		}
	}
	return nil
}

// givenURL is the URL of the flag, or that of the environment.
func (l *line) givenURL() string {
	if url, ok := os.LookupEnv("FENCELOCK_URL"); ok && !l.urlGiven {
		return url
	}
	return l.url
}

// flagError says in our words what is wrong with a flag. A value is repeated only by
// options that take no secret.
func (l *line) flagError(err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name, dashes := unknown.GetSpecifiedName(), "--"
		if unknown.GetSpecifiedShortnames() != "" {
			dashes = "-"
		}
		if owner := l.ownerOf(name, dashes); owner != nil {
			return &wrongLine{fmt.Sprintf("unknown flag %s%s before the command; it is a flag of %s", dashes, name, owner.name),
				strings.Replace(usage(owner), "[flags]", dashes+name, 1)}
		}
		if dashes == "-" {
			return fmt.Errorf("unknown flag -%s", name)
		}
		return fmt.Errorf("unknown flag --%s%s", name, termtext.Suggest(name, l.flagNames(), ", did you mean \"--%s\"?"))
	}
	if empty, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s: a value is missing; write %s", empty.GetFlag().Name, longForm(empty.GetFlag()))
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s: %w", wrong.GetFlag().Name, wrong.Unwrap())
	}
	return err
}

// wrongLine is a command line that is wrong, where more can be said of it than which page helps.
type wrongLine struct{ what, try string }

// Error says what is wrong.
func (e *wrongLine) Error() string { return e.what }

// meantVerbs are words of other tools for what a verb of ours does.
var meantVerbs = map[string]string{
	"list": "ls", "show": "status", "info": "status", "unlock": "break", "release": "break",
	"exec": "run", "lock": "run", "leader": "elect", "follow": "watch", "tail": "watch", "check": "doctor",
}

// noVerb says what is wrong with a line whose first word is no verb, which may be what flock takes:
// a name, and a command.
func (l *line) noVerb(words []string) error {
	what := "unexpected argument " + words[0]
	if meant := meantVerbs[words[0]]; meant != "" {
		return fmt.Errorf("%s, did you mean %q?", what, meant)
	}
	near := termtext.Suggest(words[0], verbNames(l.verbs), ", did you mean %q?")
	if near == "" && len(words) > 1 && !strings.Contains(words[0], "://") {
		return &wrongLine{what + "; it is no command of fencelock", "fencelock run NAME -- CMD [ARG]..., or fencelock --help"}
	}
	return errors.New(what + near)
}

// ownerOf returns the first verb that has the flag, if the flag stands before any verb.
func (l *line) ownerOf(name, dashes string) *verb {
	for _, v := range l.verbs {
		if l.verb != nil || v.flags == nil {
			continue
		}
		f := newFlagSet()
		v.flags(f)
		if dashes == "--" && f.Lookup(name) != nil || dashes == "-" && len(name) == 1 && f.ShorthandLookup(name) != nil {
			return v
		}
	}
	return nil
}

// flagNames returns the long names of the flags that may stand on the line.
func (l *line) flagNames() (names []string) {
	l.flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// longForm is how a flag is written with its value, such as --ttl=DURATION.
func longForm(f *pflag.Flag) string {
	if f.Value.Type() == "" {
		return "--" + f.Name
	}
	return "--" + f.Name + "=" + f.Value.Type()
}
