//go:build unix

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
)

// doctorPatience is the time limit of the checks. Opening the engine has a limit of its own.
const doctorPatience = 30 * time.Second

// doctorCmd is the verb doctor. TTL is that of the locks to be used, since some settings suit long
// leases only.
type doctorCmd struct{ TTL time.Duration }

func newDoctor(a *App) *cobra.Command {
	c := new(doctorCmd)
	cmd := &cobra.Command{
		Use: "doctor [flags]", GroupID: SeeLocks, Short: "Check whether a server is set up correctly for locks.", SuggestFor: []string{"check"},
		Long: `Prints a line for each check: good, unknown (could not be checked), warning (locks promise less in some failures) or broken, and what was observed. For what is not good, two more lines say what it means for locks and what to do. doctor locks only names of its own, which disappear after some seconds.`,
		Example: `fencelock doctor
fencelock doctor --ttl 5s --json | jq 'select(.severity != "good")'`,
		Annotations: map[string]string{ExitCodes: Table([]Row{{"70", "a check found something broken"}})},
		Args:        Arguments(), PreRunE: Checked(func() error { return checkTTL(c.TTL) }),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	Duration(cmd.Flags(), &c.TTL, "ttl", defaultTTL, "The TTL that your locks have.")
	return cmd
}

// Run checks the engine and prints the findings.
func (c *doctorCmd) Run(a *App) error {
	findings, err := ask(a, c.examine)
	if err != nil {
		return err
	}
	return cmp.Or(printList(a, findings, func(f driver.Finding) findingView {
		return findingView{f.Check, f.Severity.String(), f.Observed, f.Impact, f.Fix}
	}, findingText), brokenOf(findings))
}

// examine returns the findings of the engine. Only mem: has no checks.
func (c *doctorCmd) examine(ctx context.Context, engine driver.Engine) ([]driver.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	if inspector, ok := engine.(driver.Inspector); ok {
		return inspector.Inspect(ctx, c.TTL)
	}
	return []driver.Finding{inspect.Found("reach", driver.Warning, "locks live in this process",
		"nobody outside this process is excluded", "an engine that several processes share, such as --url file:///path")}, nil
}

// brokenOf returns an error if a finding is broken.
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
	return Exit(ExitBroken, fmt.Errorf("%d of %d checks found something broken", broken, len(findings)))
}

// findingView is driver.Finding as --json prints it. docs/cli-json.md documents it.
type findingView struct {
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Observed string `json:"observed"`
	Impact   string `json:"impact"`
	Fix      string `json:"fix"`
}

// findingText formats findings: a line each, and up to two more for one that is not good. What to do
// about several findings is shown once.
func findingText(findings []driver.Finding) string {
	var b strings.Builder
	first := map[string]string{} // the first check of each fix
	for _, f := range findings {
		if check := first[f.Fix]; check != "" {
			f.Fix = "as for " + check
		} else if f.Fix != "" {
			first[f.Fix] = f.Check
		}
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
