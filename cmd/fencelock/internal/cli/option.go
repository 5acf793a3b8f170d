//go:build unix

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// flagSet is the flags that a verb takes. pflag reads them; the values are options of
// ours, since help, man pages and completion want to know more of them.
type flagSet struct{ *pflag.FlagSet }

// newFlagSet returns a set that stops at the first argument, prints nothing and keeps the
// order in which flags are added, which is the one people read.
func newFlagSet() flagSet {
	f := flagSet{pflag.NewFlagSet("fencelock", pflag.ContinueOnError)}
	f.SortFlags = false
	f.SetInterspersed(false)
	f.Usage = func() {}
	return f
}

// add takes in a flag. short may be empty. One without a placeholder takes a value only
// after "=", such as --json=false.
func (f flagSet) add(name, short string, o *option, help string) {
	flag := f.VarPF(o, name, short, help)
	if o.placeholder == "" {
		flag.NoOptDefVal = "true"
	}
}

// option is the value of a flag.
type option struct {
	set         func(string) error // takes the text, or says what is wrong with it
	placeholder string             // what stands for the value; "" for a flag without one
	preset      string             // the value if the flag is not given; "" where that goes without saying
	values      []string           // all there are, or those worth offering
	required    bool
}

// Set reads the value.
func (o *option) Set(s string) error { return o.set(s) }

// String returns the value if the flag is not given.
func (o *option) String() string { return o.preset }

// Type returns what stands for the value in texts.
func (o *option) Type() string { return o.placeholder }

// boolean is a flag that is there or not.
func boolean(p *bool) *option {
	return &option{set: func(s string) (err error) {
		if *p, err = strconv.ParseBool(s); err != nil {
			err = fmt.Errorf("%q is neither true nor false", s)
		}
		return err
	}}
}

// text is any text; what p points to is its preset.
func text(p *string, placeholder string) *option {
	return &option{placeholder: placeholder, preset: *p, set: setText(p)}
}

// choice is one of a few words, of which p points to the preset.
func choice(p *string, placeholder string, words ...string) *option {
	return &option{placeholder: placeholder, preset: *p, values: words, set: func(s string) error {
		*p = s
		return oneOf(s, words)
	}}
}

// oneOf refuses what is not one of the words.
func oneOf(s string, words []string) error {
	if slices.Contains(words, s) {
		return nil
	}
	return fmt.Errorf("%q is not one of %s", s, strings.Join(words, ", "))
}

// duration is a time as Go writes it; what p points to is its preset.
func duration(p *time.Duration, values ...string) *option {
	o := &option{placeholder: "DURATION", values: values, set: func(s string) (err error) {
		if *p, err = time.ParseDuration(s); err != nil {
			err = notDuration(s)
		}
		return err
	}}
	if *p != 0 {
		o.preset = p.String()
	}
	return o
}

// notDuration is the error of all that read a time.
func notDuration(s string) error {
	return fmt.Errorf("%q is not a duration such as 30s or 1m30s", s)
}

// number is a whole number; what p points to is its preset.
func number(p *int) *option {
	o := &option{placeholder: "N", set: func(s string) (err error) {
		*p, err = parseNumber(s)
		return err
	}}
	if *p != 0 {
		o.preset = strconv.Itoa(*p)
	}
	return o
}

// atLeast refuses values of a flag, which are in p, below the least: 0, as an empty variable in a
// script makes it, would otherwise mean that the flag was not given.
func atLeast[T int | time.Duration](least T, p *T, o *option) *option {
	set := o.set
	o.set = func(s string) error {
		err := set(s)
		if err == nil && *p < least {
			err = fmt.Errorf("%s is less than %v", s, least)
		}
		return err
	}
	return o
}

// parseNumber reads a whole number; what a number may be is the verb's to say.
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

// setText takes any text as it is.
func setText(p *string) func(string) error {
	return func(s string) error {
		*p = s
		return nil
	}
}
