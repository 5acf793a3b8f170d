//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/cmd/internal/cli"
)

func TestEachVerbHasAPageWithItsFlags(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	root := cli.New()
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		if cmd.Name() == "help" { // help has no page of its own
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.Contains(string(raw), "\n\t") || !regexp.MustCompile(`(?m)^\.TH "[A-Z-]+" "1" "\d{4}-\d\d-\d\d" `).Match(raw) {
			t.Errorf("%s: mandoc would warn of a tab or of the date:\n%s", cmd.Name(), raw)
		}
		page := strings.ReplaceAll(string(raw), `\`, "")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(page, "--"+f.Name) == f.Hidden {
				t.Errorf("%s: --%s, hidden: %v, is on the page: %v", cmd.Name(), f.Name, f.Hidden, f.Hidden)
			}
		})
		if !strings.Contains(page, ".SH EXIT CODES\n") || !strings.Contains(page, "the command line is wrong") {
			t.Errorf("%s: no exit codes", cmd.Name())
		}
	}
}
