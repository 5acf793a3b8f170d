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

// number is the value of a flag that takes a whole number. The one of pflag reads 010 as 8, and
// has no least: 0, as an empty variable in a script makes it, would mean that the flag was not given.
type number struct {
	*int
	least int
}

// Set reads the value.
func (n number) Set(s string) (err error) {
	if *n.int, err = parseNumber(s); err == nil && *n.int < n.least {
		err = fmt.Errorf("%s is less than %d", s, n.least)
	}
	return err
}

// String returns the value.
func (n number) String() string { return strconv.Itoa(*n.int) }

// Type returns what stands for the value in texts.
func (n number) Type() string { return "N" }

// parseNumber reads a whole number.
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

// notDuration is the error of all that read a time.
func notDuration(s string) error {
	return fmt.Errorf("%q is not a duration such as 30s or 1m30s", s)
}

// offer gives completion the values worth offering for a flag.
func offer(cmd *cobra.Command, flag string, directive cobra.ShellCompDirective, values ...string) {
	directive |= cobra.ShellCompDirectiveNoFileComp
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, directive)); err != nil {
		panic(err) // there is no such flag
	}
}

// longForm is how a flag is written with its value, such as --ttl=DURATION. What stands for the
// value is between back quotes in the usage of most flags.
func longForm(f *pflag.Flag) string {
	if value, _ := pflag.UnquoteUsage(f); value != "" {
		return "--" + f.Name + "=" + strings.ToUpper(value)
	}
	return "--" + f.Name
}
