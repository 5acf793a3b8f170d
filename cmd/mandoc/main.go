//go:build unix

// Command mandoc writes the manual pages of fencelock, one for each verb, into a directory.
// Releases contain the pages. mandoc is a separate program, so that fencelock does not include the
// generator.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/fencelock/fencelock/cmd/internal/cli"
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
	date, err := pageDate()
	if err != nil {
		return err
	}
	err = doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{
		Header: &doc.GenManHeader{Section: "1", Source: "fencelock", Date: &date}, Path: dir, CommandSeparator: "-",
	})
	if err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "fencelock*.1"))
	for _, page := range pages {
		if err == nil {
			err = tidy(page, date)
		}
	}
	return err
}

// pageDate returns the time of SOURCE_DATE_EPOCH, or now.
func pageDate() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// tagged is a word with its meaning on the next line, behind a tab.
var tagged = regexp.MustCompile(`(?m)(?:^\.PP\n)?^(\\fB.*)\n\t(.*)$`)

// tidy changes two things that mandoc(1) warns of: the generator's date has no day, and it leaves
// the tabs of description, which become indented paragraphs.
func tidy(page string, date time.Time) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text = bytes.Replace(text, []byte(date.Format(`"Jan 2006"`)), []byte(date.Format(`"2006-01-02"`)), 1)
	return os.WriteFile(page, tagged.ReplaceAll(text, []byte(".TP\n$1\n$2")), 0o644)
}

// description returns what a command does, followed by the sections of its help that the generator
// does not know.
func description(cmd *cobra.Command) string {
	page := cmd.Short + "\n\n" + cmd.Long
	for _, title := range []string{"Arguments", "Broken engines of --sabotage", "Variables", "Exit codes"} {
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
