//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
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
		Long: `A finding a line: good, unknown (could not be looked at), warning (weakens a promise in some failures) or broken, then what was seen. What is not good says what it means for locks, and what to do. Nothing but probe names is locked, and nothing is left of them.`,
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

// examine asks the engine about itself, or tries one that cannot tell.
func examine(ctx context.Context, engine driver.Engine, ttl time.Duration) ([]driver.Finding, error) {
	if inspector, ok := engine.(driver.Inspector); ok {
		return inspector.Inspect(ctx, ttl)
	}
	t := inspect.Trial{Engine: engine, Name: inspect.NewName(), TTL: ttl, Denied: func(error) bool { return false }, Grant: "see what these words ask for"}
	findings, err := t.Run(ctx)
	if engine.Traits().Engine == "memory" {
		findings = append(findings, inspect.Found("reach", driver.Warning, "locks live in this process",
			"nobody outside this process is excluded", "an engine that several processes share, such as --url file:///path"))
	}
	return findings, err
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
