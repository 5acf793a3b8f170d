//go:build unix

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// number is the value of a flag that takes a decimal whole number of at least least. pflag would
// read 010 as 8. A 0, which an empty shell variable may produce, must not count as an absent flag.
type number struct {
	*int
	least int
}

// Set parses the value.
func (n number) Set(s string) (err error) {
	if *n.int, err = parseNumber(s); err == nil && *n.int < n.least {
		err = fmt.Errorf("%s is less than %d", s, n.least)
	}
	return err
}

// String returns the value.
func (n number) String() string { return strconv.Itoa(*n.int) }

// Type returns the placeholder for the value in help.
func (n number) Type() string { return "N" }

// parseNumber parses a decimal whole number.
func parseNumber(s string) (int, error) {
	n, err := strconv.Atoi(s)
	switch {
	case errors.Is(err, strconv.ErrRange):
		err = fmt.Errorf("%q is too large", s)
	case err != nil:
		err = fmt.Errorf("%q is not a whole number", s)
	}
	return n, err
}

// notDuration is the error for a string that is not a duration.
func notDuration(s string) error {
	return fmt.Errorf("%q is not a duration such as 30s or 1m30s", s)
}

// offer registers values that completion suggests for a flag.
func offer(cmd *cobra.Command, flag string, directive cobra.ShellCompDirective, values ...string) {
	directive |= cobra.ShellCompDirectiveNoFileComp
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, directive)); err != nil {
		panic(err) // there is no such flag
	}
}

// longForm returns a flag with its placeholder, such as --ttl=DURATION.
func longForm(f *pflag.Flag) string {
	if value, _ := pflag.UnquoteUsage(f); value != "" {
		return "--" + f.Name + "=" + strings.ToUpper(value)
	}
	return "--" + f.Name
}
