//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// doctorPatience is how long the examination of an engine may take.
const doctorPatience = 30 * time.Second

// doctorCmd examines an engine. The TTL is that of the locks that are meant, since some
// settings are fit for long leases only.
type doctorCmd struct{ TTL time.Duration }

// newDoctor returns the verb doctor.
func newDoctor(a *app) *cobra.Command {
	c := new(doctorCmd)
	cmd := &cobra.Command{
		Use: "doctor [flags]", GroupID: seeLocks, Short: "Check an engine's configuration against what locks promise.", SuggestFor: []string{"check"},
		Long: `A finding a line: good, unknown (could not be looked at), warning (weakens a promise in some failures) or broken, then what was seen. What is not good says what it means for locks, and what to do. Nothing but a probe name is locked, and it is left free.`,
		Example: `fencelock doctor
fencelock doctor --ttl 5s --json | jq 'select(.severity != "good")'`,
		Annotations: map[string]string{exitCodes: table([]explained{{"70", "something is broken"}})},
		Args:        arguments(), PreRunE: checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().DurationVar(&c.TTL, "ttl", defaultTTL, "The TTL of the locks you mean to use.")
	return cmd
}

// check finds what the parser cannot.
func (c *doctorCmd) check() error {
	if c.TTL < shortestTTL {
		return fmt.Errorf("the TTL %v is shorter than %v", c.TTL, shortestTTL)
	}
	return nil
}

// Run examines the engine and prints what it finds. The limit is that of the examination;
// opening an engine has a limit of its own.
func (c *doctorCmd) Run(a *app) error {
	var findings []driver.Finding
	err := a.with(func(ctx context.Context, engine driver.Engine) (err error) {
		limited, cancel := context.WithTimeout(ctx, doctorPatience)
		defer cancel()
		findings, err = examine(limited, engine, c.TTL)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.print(a, findings); err != nil {
		return err
	}
	return brokenOf(findings)
}

// examine takes a probe lock, and asks the engine about itself if it can tell. A probe that
// fails is a finding beside the others, which may name the cause; alone it is an error.
func examine(ctx context.Context, engine driver.Engine, ttl time.Duration) ([]driver.Finding, error) {
	round, failed := probe(ctx, engine, ttl)
	inspector, ok := engine.(driver.Inspector)
	if !ok {
		return append(round, ending(engine.Traits())), failed
	}
	if !engine.Traits().Leased {
		round = append(round, ending(engine.Traits()))
	}
	findings, err := inspector.Inspect(ctx, ttl)
	if err != nil {
		return nil, err
	}
	if failed != nil {
		round = []driver.Finding{{
			Check: "probe lock", Severity: driver.Broken, Observed: failed.Error(),
			Impact: "locks do not work at all",
			Fix:    "see the findings below; they name the cause as far as it shows",
		}}
	}
	return append(round, findings...), nil
}

// brokenOf is the error of findings of which one is broken.
func brokenOf(findings []driver.Finding) error {
	broken := 0
	for _, f := range findings {
		if f.Severity == driver.Broken {
			broken++
		}
	}
	if broken == 0 {
		return nil
	}
	return &exitError{code: exitBroken, err: fmt.Errorf("%d of %d checks found something broken", broken, len(findings))}
}

// findingView is driver.Finding as --json prints it; docs/cli-json.md documents
// it.
type findingView struct {
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Observed string `json:"observed"`
	Impact   string `json:"impact"`
	Fix      string `json:"fix"`
}

// print writes all findings, the good ones too: who reads it sees what was looked at.
func (c *doctorCmd) print(a *app, findings []driver.Finding) error {
	for _, f := range findings {
		var err error
		if a.json {
			err = printJSON(a.stdout, findingView{f.Check, f.Severity.String(), f.Observed, f.Impact, f.Fix})
		} else {
			err = printFinding(a.stdout, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printFinding writes one finding: a line, and two more if it is not good.
func printFinding(w io.Writer, f driver.Finding) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %-13s %s\n", f.Severity, f.Check, termtext.Line(f.Observed))
	if f.Impact != "" {
		fmt.Fprintf(&b, "%22s means: %s\n", "", termtext.Line(f.Impact))
	}
	if f.Fix != "" {
		fmt.Fprintf(&b, "%22s do:    %s\n", "", termtext.Line(f.Fix))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ending tells what ends a lock whose holder vanished.
func ending(t driver.Traits) driver.Finding {
	switch {
	case t.Engine == "memory":
		return driver.Finding{
			Check: "reach", Severity: driver.Warning, Observed: "locks live in this process",
			Impact: "nobody outside this process is excluded",
			Fix:    "an engine that several processes share, such as --url file:///path",
		}
	case t.Leased:
		return driver.Finding{Check: "ending", Observed: "a lock ends with its lease"}
	}
	return driver.Finding{Check: "ending", Observed: "a lock ends with the process that holds it, and has no lease"}
}

// probeName is the name that doctor locks, always the same: an engine may keep a trace of
// every name for good.
const probeName = "fencelock-doctor"

// probe acquires, renews and releases a probe name. What it finds is about time: a renewal
// has a sixth of the TTL, and one that takes longer here will fail when it counts. The engine
// is asked without a Locker, which would renew on its own.
func probe(ctx context.Context, engine driver.Engine, ttl time.Duration) ([]driver.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience/3) // another doctor may hold it
	defer cancel()
	begun := time.Now()
	short := min(ttl, 5*time.Second) // what stays if it cannot be released
	grant, err := engine.Acquire(ctx, driver.Request{Name: probeName, TTL: short, Wait: true})
	if err != nil {
		return nil, err
	}
	lease := driver.Lease{Name: probeName, Owner: grant.Owner, Token: grant.Token, TTL: short}
	asked := time.Now()
	renewed := engine.Renew(ctx, []driver.Lease{lease})[0]
	took := time.Since(asked)
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), short) // a signal leaves no probe behind
	defer cancel()
	if err := errors.Join(renewed, engine.Release(releasing, lease)); err != nil {
		return nil, err
	}
	f := driver.Finding{Check: "probe lock", Observed: fmt.Sprintf("acquired, renewed and released in %v, token %d",
		time.Since(begun).Round(10*time.Microsecond), grant.Token)}
	if engine.Traits().Leased && took > ttl/6 {
		f.Severity = driver.Warning
		f.Impact = fmt.Sprintf("a renewal took %v, and a TTL of %v leaves an attempt %v", took.Round(time.Millisecond), ttl, ttl/6)
		f.Fix = "a longer TTL, or an engine that is nearer"
	}
	return []driver.Finding{f}, nil
}
