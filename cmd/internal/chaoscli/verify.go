//go:build unix

package chaoscli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/cmd/internal/cli"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
)

// Verify returns the verb verify, which checks a log against the specification.
func Verify(a *cli.App) *cobra.Command {
	var file, edn string
	var skew time.Duration
	cmd := &cobra.Command{
		Use: "verify [flags] FILE", GroupID: cli.SeeLocks, Short: "Check a log against the specification.",
		Long: `Reads what happened to locks, and says whether the specification accepts it: one holder at a time, tokens that grow, losses before the next grant, no accepted late write. FILE is a history.jsonl of chaos, a directory with the event files of a test, or a log of JSON lines with the name and the token of each lock that was acquired, lost and released. - is the standard input.

It uses no engine.`,
		Example: `fencelock-all verify history.jsonl
cat host-*/service.log | fencelock-all verify --skew 50ms -`,
		Annotations: map[string]string{cli.ExitCodes: cli.Table([]cli.Row{{Word: "70", Meaning: "the specification does not accept the log"}})},
		Args:        cli.Arguments(&file),
		RunE: func(*cobra.Command, []string) error {
			if skew < 0 {
				return cli.Misuse(errors.New("verify: --skew must not be negative"), "")
			}
			h, err := readAny(file, skew)
			if err == nil && len(h.Acquisitions) == 0 {
				err = fmt.Errorf("%s: no line says that a lock was acquired", file)
			}
			if err != nil {
				return cli.Exit(cli.ExitConfig, err)
			}
			if edn != "" {
				var text strings.Builder
				if err := h.WriteEDN(&text, edn); err != nil {
					return cli.Exit(cli.ExitConfig, err)
				}
				return a.Print(text.String(), text.String())
			}
			v := h.Verify()
			if err := a.Print(v, verdictText(v)); err != nil || v.Accepted {
				return err
			}
			return cli.Exit(cli.ExitBroken, nil)
		},
	}
	cli.Duration(cmd.Flags(), &skew, "skew", 0, "By how much the clocks of the hosts may differ.")
	cmd.Flags().StringVar(&edn, "edn", "", "Print the history of the lock `NAME` in the format of Jepsen, and judge nothing.")
	return cmd
}

// readAny reads a directory, a history or a log.
func readAny(name string, skew time.Duration) (*history.History, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return history.Read(name)
	}
	file := os.Stdin
	if name != "-" {
		var err error
		if file, err = os.Open(name); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	h, err := history.ReadLog(file, skew)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return h, nil
}

func verdictText(v history.Verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d acquisitions of %d names, %d writes\n", v.Acquisitions, v.Names, v.Writes)
	if v.Open > 0 {
		fmt.Fprintf(&b, "%d acquisitions have no end and are not judged\n", v.Open)
	}
	if len(v.Excused) > 0 {
		fmt.Fprintf(&b, "%d violations that the faults of the run explain\n", len(v.Excused))
	}
	if v.Accepted {
		return b.String() + "accepted\n"
	}
	for _, r := range v.Refused[:min(10, len(v.Refused))] {
		fmt.Fprintf(&b, "\ninvariant %d, %s\n", r.Invariant, termtext.Line(r.String()))
		if r.Assumption != "" {
			fmt.Fprintf(&b, "  it holds if: %s\n", r.Assumption)
		}
	}
	fmt.Fprintf(&b, "\nrefused: %d violations\n", len(v.Refused))
	return b.String()
}
