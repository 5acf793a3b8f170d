//go:build unix

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// exitNotHeld says that there was nothing to break.
const exitNotHeld = 1

type breakCmd struct {
	Name   string `arg:"" help:"The name of the lock."`
	Reason string `required:"" placeholder:"TEXT" help:"Why; the holder is told, where it can be reached."`
}

// Help is the longer text of "fencelock break --help".
func (breakCmd) Help() string {
	return `Ends every current acquisition of the name and prints a fresh fencing token,
greater than theirs: hand it to the guard of what the lock protects, and the old
holder's writes are refused from then on. A holder that can be reached learns at
once, any other at its deadline. Exit code 1 if nobody holds the name.

    fencelock status nightly
    fencelock break nightly --reason "host db3 is gone"`
}

// Run takes the name away from its holders.
func (c breakCmd) Run(a *app) error {
	if err := driver.CheckName(c.Name); err != nil {
		return err
	}
	if strings.TrimSpace(c.Reason) == "" {
		return &exitError{exitUsage, errors.New("the reason is empty\ntry: fencelock break NAME --reason \"host db3 is gone\"")}
	}
	ctx, stop := a.interruptible()
	defer stop()
	var token int64
	err := a.with(ctx, func(engine driver.Engine) (err error) {
		breaker, ok := engine.(driver.Breaker)
		if !ok {
			return unsupported(engine, "break locks")
		}
		token, err = breaker.Break(ctx, c.Name, c.Reason)
		return err
	})
	switch {
	case token != 0: // even if a process still keeps the lock, the token shuts it out
		return errors.Join(c.print(a, token), err)
	case errors.Is(err, driver.ErrNotHeld):
		return &exitError{exitNotHeld, fmt.Errorf("%s is not held, so there is nothing to break\ntry: fencelock ls", show(c.Name))}
	}
	return err
}

func (c breakCmd) print(a *app, token int64) error {
	if a.json {
		return printJSON(a.stdout, broken{c.Name, token})
	}
	_, err := fmt.Fprintln(a.stdout, token)
	return err
}

// broken is what break --json prints.
type broken struct {
	Name  string `json:"name"`
	Token int64  `json:"token"`
}
