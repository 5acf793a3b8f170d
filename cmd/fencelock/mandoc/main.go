//go:build unix

// Command mandoc writes the manual pages of fencelock, one for each verb, into a directory.
// Releases contain the pages. mandoc is a separate program, so that fencelock does not include the
// generator.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mandoc DIRECTORY")
		os.Exit(64)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "mandoc:", err)
		os.Exit(1)
	}
}

// write writes the pages into dir, which must exist. SOURCE_DATE_EPOCH sets their date.
func write(dir string) error {
	root := cli.New()
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		cmd.Long = description(cmd)
	}
	return doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{
		Header: &doc.GenManHeader{Section: "1", Source: "fencelock"}, Path: dir, CommandSeparator: "-",
	})
}

// description returns what a command does, followed by the sections of its help that the generator
// does not know.
func description(cmd *cobra.Command) string {
	page := cmd.Short + "\n\n" + cmd.Long
	for _, title := range []string{"Arguments", "Variables", "Exit codes"} {
		if rows := cmd.Annotations[title]; rows != "" {
			page += "\n\n# " + strings.ToUpper(title)
			for row := range strings.Lines(rows) {
				word, meaning, _ := strings.Cut(strings.TrimSuffix(row, "\n"), "\t")
				page += "\n\n**" + word + "**\n\t" + meaning
			}
		}
	}
	return strings.ReplaceAll(page, "****\n\t", "")
}
