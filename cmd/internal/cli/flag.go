//go:build unix

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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

// Number adds a flag for a number that is at least least.
func Number(f *pflag.FlagSet, into *int, name string, least int, usage string) {
	f.Var(number{into, least}, name, usage)
}

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

// duration is the value of a flag that takes what parseDuration parses.
type duration struct{ *time.Duration }

// Set parses the value.
func (d duration) Set(s string) (err error) {
	*d.Duration, err = parseDuration(s)
	return err
}

// Type returns the placeholder for the value in help.
func (duration) Type() string { return "duration" }

// parseDuration parses a duration such as 1m30s, 2d or 1d12h, or a number of seconds, as flock and
// sleep do.
func parseDuration(s string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		if !(seconds > -maxSeconds && seconds < maxSeconds) {
			return 0, fmt.Errorf("%s seconds are too many", s)
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	rest, days := s, 0
	if before, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(before, 10, 16)
		if err != nil {
			return 0, notDuration(s)
		}
		if rest, days = after, int(n); rest == "" {
			rest = "0"
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || days > 0 && (d < 0 || d > maxSeconds*time.Second) {
		return 0, notDuration(s)
	}
	return time.Duration(days)*24*time.Hour + d, nil
}

// maxSeconds is above all that makes sense, and far below what overflows a duration.
const maxSeconds = 1e9

// atLeast adds a flag for a duration of at least least. An empty variable must not remove it.
func atLeast(f *pflag.FlagSet, into *time.Duration, name string, least time.Duration, usage string) {
	f.Func(name, usage, func(s string) (err error) {
		switch *into, err = parseDuration(s); {
		case err != nil:
			return err
		case *into < least && least == positive:
			return fmt.Errorf("%s is not more than 0", s)
		case *into < least:
			return fmt.Errorf("%s is less than %v", s, least)
		}
		return nil
	})
}

// positive is the least duration that is more than 0.
const positive time.Duration = 1

// text adds a flag for a text. An empty variable must not remove it.
func text(f *pflag.FlagSet, into *string, name, usage string) {
	f.Func(name, usage, func(s string) error {
		*into = s
		return notEmpty(s)
	})
}

// notEmpty refuses the value of an unset variable.
func notEmpty(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	return nil
}

// notDuration is the error for a string that is not a duration.
func notDuration(s string) error {
	return fmt.Errorf("%q is not a duration such as 30s, 1m30s or 2d", s)
}

// Offer registers values that completion suggests for a flag.
func Offer(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
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

// Duration adds a flag for a duration.
func Duration(f *pflag.FlagSet, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	f.Var(duration{into}, name, usage)
}
