//go:build unix

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
)

// The help of arguments that several verbs have.
var (
	nameRow    = Row{"NAME", "The name of the lock."}
	prefixRow  = Row{"PREFIX", "Show only names that start with this."}
	commandRow = Row{"CMD", "The command and its arguments, after --."}
)

// Arguments stores the arguments of a verb. The Use of the verb has a word for each, in brackets if
// it is optional. Inlined, it would be compiled once for each verb, and the command would be 20 kB larger.
//
//go:noinline
func Arguments(into ...*string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(into) {
			return &misuse{error: fmt.Errorf("unexpected argument %s", args[len(into)])}
		}
		for i, arg := range args {
			if *into[i] = arg; engineurl.HasScheme(arg) { // its password would be shown to all who list the locks
				return &misuse{error: errors.New("a URL stands where no URL belongs; write it after --url")}
			}
		}
		if words := strings.Fields(cmd.Use)[2:]; len(args) < len(into) && words[len(args)][0] != '[' {
			return &misuse{error: fmt.Errorf("the argument %s is missing", words[len(args)])}
		}
		return nil
	}
}

// withCommand makes a verb take a name and then a command. Flags may stand before and after the
// name. Everything after that belongs to the command.
func withCommand(cmd *cobra.Command, name *string, command *[]string) {
	cmd.Flags().SetInterspersed(false)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := Arguments(name)(cmd, args[:min(len(args), 1)]); err != nil {
			return err
		}
		*command = args[1:]
		if cmd.ArgsLenAtDash() >= 0 {
			return nil
		}
		err := cmd.ParseFlags(args[1:])
		if help, _ := cmd.Flags().GetBool("help"); err == nil && help {
			err = pflag.ErrHelp
		}
		*command = cmd.Flags().Args()
		return err
	}
}

// checkedName returns a PreRunE that checks the name of a lock.
func checkedName(name *string) func(*cobra.Command, []string) error {
	return Checked(func() error { return driver.CheckName(*name) })
}

// Checked returns a PreRunE that calls check, for what the parser cannot find. It is not inlined for
// the same reason as Arguments.
//
//go:noinline
func Checked(check func() error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := check(); err != nil {
			return &misuse{error: fmt.Errorf("%s: %w", cmd.Name(), err)}
		}
		return nil
	}
}
