//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/cli"
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
		page := strings.ReplaceAll(string(raw), `\`, "")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(page, "--"+f.Name) {
				t.Errorf("%s: the page does not contain --%s", cmd.Name(), f.Name)
			}
		})
		if !strings.Contains(page, ".SH EXIT CODES\n") || !strings.Contains(page, "the command line is wrong") {
			t.Errorf("%s: no exit codes", cmd.Name())
		}
	}
}
