//go:build unix

package cli

import (
	"cmp"
	"context"
	"fmt"
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
		Use: "doctor [flags]", GroupID: seeLocks, Short: "Check whether a server is set up correctly for locks.", SuggestFor: []string{"check"},
		Long: `Prints a line for each check: good, unknown (could not be checked), warning (locks promise less in some failures) or broken, and what was observed. For what is not good, two more lines say what it means for locks and what to do. doctor locks only names of its own, which disappear after some seconds.`,
		Example: `fencelock doctor
fencelock doctor --ttl 5s --json | jq 'select(.severity != "good")'`,
		Annotations: map[string]string{exitCodes: table([]explained{{"70", "a check found something broken"}})},
		Args:        arguments(), PreRunE: checked(func() error { return checkTTL(c.TTL) }),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().DurationVar(&c.TTL, "ttl", defaultTTL, "The TTL that your locks have.")
	return cmd
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
	return cmp.Or(printList(a, findings, findingViewOf, findingText), brokenOf(findings))
}

// examine asks the engine about itself. That of this process has nothing to tell.
func examine(ctx context.Context, engine driver.Engine, ttl time.Duration) ([]driver.Finding, error) {
	if inspector, ok := engine.(driver.Inspector); ok {
		return inspector.Inspect(ctx, ttl)
	}
	return []driver.Finding{inspect.Found("reach", driver.Warning, "locks live in this process",
		"nobody outside this process is excluded", "an engine that several processes share, such as --url file:///path")}, nil
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

func findingViewOf(f driver.Finding) findingView {
	return findingView{f.Check, f.Severity.String(), f.Observed, f.Impact, f.Fix}
}

// findingText is a line for each finding, and two more for one that is not good.
func findingText(findings []driver.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-8s %-13s %s\n", f.Severity, f.Check, termtext.Line(f.Observed))
		if f.Impact != "" {
			fmt.Fprintf(&b, "%22s means: %s\n", "", termtext.Line(f.Impact))
		}
		if f.Fix != "" {
			fmt.Fprintf(&b, "%22s do:    %s\n", "", termtext.Line(f.Fix))
		}
	}
	return b.String()
}
