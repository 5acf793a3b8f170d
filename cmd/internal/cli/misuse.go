//go:build unix

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
)

// misuse is an error in the command line.
type misuse struct {
	error
	try string // the hint; "" is the help of the command
}

// Misuse returns the error of a wrong command line. try is what to write instead; "" is the help.
func Misuse(err error, try string) error { return &misuse{err, try} }

// Unwrap returns the error.
func (m *misuse) Unwrap() error { return m.error }

// refuse turns an error in the command line into an exitError with a hint. It returns other errors
// unchanged. It removes passwords, since a URL may be in the wrong place.
func refuse(cmd *cobra.Command, err error) error {
	wrong, ok := errors.AsType[*misuse](wrongFlag(cmd, err))
	if !ok {
		return err
	}
	if wrong.try == "" {
		wrong.try = cmd.CommandPath() + " --help"
	}
	text := strings.ReplaceAll(wrong.Error(), "\n", " ")
	return Exit(ExitUsage, fmt.Errorf("%s\ntry: %s", text, wrong.try))
}

// wrongFlag turns an error of pflag into a misuse. Its text repeats the value only of flags that
// hold no secret.
func wrongFlag(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, unknown)
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return &misuse{error: fmt.Errorf("--%s: %w", wrong.GetFlag().Name, wrong.Unwrap())}
	}
	_, empty := errors.AsType[*pflag.ValueRequiredError](err)
	if _, malformed := errors.AsType[*pflag.InvalidSyntaxError](err); empty || malformed {
		return &misuse{error: err}
	}
	return err
}

// unknownFlag suggests a flag of a similar name, or the verb that has the flag if it stands before
// every verb.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	name, dashes := unknown.GetSpecifiedName(), "--"
	if unknown.GetSpecifiedShortnames() != "" {
		dashes = "-"
	}
	for _, owner := range cmd.Commands() { // only the root has subcommands
		f := owner.Flags()
		if dashes == "--" && f.Lookup(name) != nil || dashes == "-" && len(name) == 1 && f.ShorthandLookup(name) != nil {
			return &misuse{fmt.Errorf("unknown flag %s%s before the command; it is a flag of %s", dashes, name, owner.Name()),
				strings.Replace(owner.UseLine(), "[flags]", dashes+name, 1)}
		}
	}
	near := ""
	if dashes == "--" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		near = termtext.Suggest(name, names, ", did you mean \"--%s\"?")
	}
	return &misuse{error: fmt.Errorf("unknown flag %s%s%s", dashes, name, near)}
}

// noVerb is the error for words that do not start with a verb. They may be a command line of flock:
// a name and a command.
func noVerb(root *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	if root.ArgsLenAtDash() == 0 {
		return &misuse{error: errors.New("unexpected -- before the command")}
	}
	if words[0] == "chaos" || words[0] == "verify" {
		return &misuse{fmt.Errorf("fencelock does not have %s, fencelock-all has", words[0]), engineurl.InstallAll}
	}
	what := "unexpected argument " + words[0]
	if near := root.SuggestionsFor(words[0]); len(near) > 0 {
		return &misuse{error: fmt.Errorf("%s, did you mean %q?", what, near[0])}
	}
	if len(words) > 1 && !strings.Contains(words[0], "://") {
		return &misuse{errors.New(what + "; fencelock has no such command"), "fencelock run NAME -- CMD [ARG]..., or fencelock --help"}
	}
	return &misuse{error: errors.New(what)}
}
