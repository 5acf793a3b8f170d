//go:build unix

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is how many columns a help page takes.
const helpWidth = 80

// The sections of a page that cobra does not know: annotations of a command, as table makes them.
const (
	argumentRows = "Arguments"
	variables    = "Variables"
	exitCodes    = "Exit codes"
)

// explained is a word with what it means.
type explained struct{ word, meaning string }

// table is rows of explanations in one text: a line each, with a tab behind the word.
func table(rows []explained) string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, r.word+"\t"+r.meaning)
	}
	return strings.Join(lines, "\n")
}

// explanations returns the rows of a table.
func explanations(table string) (rows []explained) {
	for line := range strings.Lines(table) {
		word, meaning, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		rows = append(rows, explained{word, meaning})
	}
	return rows
}

// commonCodes are the exit codes of every verb.
var commonCodes = []explained{
	{"64", "the command line is wrong"},
	{"69", "the server is unreachable"},
	{"78", "the configuration is wrong, a permission is missing, or the login was refused"},
}

// verbCodes are the exit codes that only some verbs have.
var verbCodes = []explained{
	{"", "the exit code of the command, or one of these:"},
	{"70", "doctor found something broken"},
	{"71", "fencelock could not start its watchdog or get another resource"},
	{"74", "stdout could not be written"},
	{"75", "the lock is busy"},
	{"76", "the lock was lost"},
	{"128+n", "the command was killed by signal n"},
}

// startCodes are the exit codes of the verbs that start a command.
var startCodes = []explained{
	{"126", "the command cannot be executed"},
	{"127", "the command was not found"},
}

// addCommonCodes adds to each command the exit codes that it shares with others, and puts all in
// order.
func addCommonCodes(root *cobra.Command) {
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		all := append(explanations(cmd.Annotations[exitCodes]), commonCodes...)
		if cmd == root || cmd.GroupID == useLocks {
			all = append(all, startCodes...)
		}
		slices.SortStableFunc(all, func(a, b explained) int {
			return cmp.Or(cmp.Compare(len(a.word), len(b.word)), cmp.Compare(a.word, b.word))
		})
		if cmd.Annotations == nil {
			cmd.Annotations = map[string]string{}
		}
		cmd.Annotations[exitCodes] = table(all)
	}
}

// addHelp adds the verb help. It is that of cobra, but refuses what is no verb.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Use, help.GroupID, help.Short, help.Long = "help [flags] [COMMAND]", moreVerb, "Show the help of a command.", ""
	help.Args = func(_ *cobra.Command, words []string) error {
		if found, _, _ := root.Find(words); len(words) > 1 || len(words) == 1 && found == root {
			return noVerb(root, words[len(words)-1:])
		}
		return nil
	}
}

// printHelp prints the page of a command.
func (a *app) printHelp(cmd *cobra.Command, _ []string) {
	_, a.helpFailed = io.WriteString(a.stdout, helpPage(cmd))
}

// helpPage is the page of a command: what it does, examples, and then all it takes.
func helpPage(cmd *cobra.Command) string {
	var p page
	p.WriteString("Usage: " + cmd.UseLine() + "\n\n" + cmd.Short + "\n")
	for paragraph := range strings.SplitSeq(cmd.Long, "\n\n") {
		if paragraph != "" {
			p.WriteString("\n" + wrap(paragraph, 0) + "\n")
		}
	}
	if cmd.Example != "" {
		p.head("Examples")
		p.WriteString("  " + strings.ReplaceAll(cmd.Example, "\n", "\n  ") + "\n")
	}
	p.table("Arguments", cmd.Annotations[argumentRows])
	for _, g := range cmd.Groups() {
		p.head(g.Title)
		for _, v := range cmd.Commands() {
			if v.GroupID == g.ID {
				p.row(11, v.Name(), v.Short)
			}
		}
	}
	p.flags("Flags", cmd.LocalFlags())
	p.flags("Flags of every command", cmd.InheritedFlags())
	p.table("Variables", cmd.Annotations[variables])
	p.table("Exit codes", cmd.Annotations[exitCodes])
	if cmd.HasSubCommands() {
		p.WriteString("\nMore: fencelock COMMAND --help\n")
	}
	return p.String()
}

// page is a page of help that is being written.
type page struct{ strings.Builder }

// head begins a section.
func (p *page) head(title string) { p.WriteString("\n" + title + ":\n") }

// table writes a table below a title. A meaning without a word is a sentence for itself. An
// empty table is not there at all.
func (p *page) table(title, table string) {
	rows, width := explanations(table), 0
	if len(rows) == 0 {
		return
	}
	p.head(title)
	for _, r := range rows {
		width = max(width, len(r.word))
	}
	for _, r := range rows {
		if r.word == "" {
			p.WriteString("  " + wrap(r.meaning, 2) + "\n")
			continue
		}
		p.row(width, r.word, r.meaning)
	}
}

// row writes a word and what it means, in a column that begins behind the widest word.
func (p *page) row(width int, word, meaning string) {
	fmt.Fprintf(p, "  %-*s  %s\n", width, word, wrap(meaning, width+4))
}

// flagColumn is where the explanation of a flag begins.
const flagColumn = 26

// flags explains flags below a title: a short one beside its explanation, a long one above it.
func (p *page) flags(title string, f *pflag.FlagSet) {
	if !f.HasFlags() {
		return
	}
	p.head(title)
	f.SortFlags = false
	f.VisitAll(func(f *pflag.Flag) {
		word := "    " + longForm(f)
		if f.Shorthand != "" {
			word = "-" + f.Shorthand + ", " + longForm(f)
		}
		_, help := pflag.UnquoteUsage(f)
		if !slices.Contains([]string{"", "0", "0s", "false"}, f.DefValue) {
			help += " (default " + f.DefValue + ")"
		}
		if len(word) > flagColumn-4 {
			fmt.Fprintf(p, "  %s\n%*s%s\n", word, flagColumn, "", wrap(help, flagColumn))
			return
		}
		p.row(flagColumn-4, word, help)
	})
}

// wrap breaks text into lines of at most helpWidth columns, of which all but the first are
// indented. A word that is longer has a line for itself.
func wrap(text string, indent int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > helpWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
