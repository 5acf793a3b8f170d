//go:build unix

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the width of help in columns.
const helpWidth = 80

// The sections of help that cobra does not have. They are annotations of a command, in the format
// of table.
const (
	argumentRows = "Arguments"
	SabotageRows = "Broken engines of --sabotage"
	variables    = "Variables"
	ExitCodes    = "Exit codes"
)

// Row is a word and its meaning.
type Row struct{ Word, Meaning string }

// Table joins rows into one string: a line per row, with a tab after the word.
func Table(rows []Row) string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, r.Word+"\t"+r.Meaning)
	}
	return strings.Join(lines, "\n")
}

// explanations is the inverse of table.
func explanations(table string) (rows []Row) {
	for line := range strings.Lines(table) {
		word, meaning, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		rows = append(rows, Row{word, meaning})
	}
	return rows
}

// commonCodes are the exit codes of every verb.
var commonCodes = []Row{
	{"64", "the command line is wrong"},
	{"69", "the server is unreachable"},
	{"78", "the configuration is wrong, a permission is missing, or the login was refused"},
}

// verbCodes are exit codes that only some verbs have.
var verbCodes = []Row{
	{"", "the exit code of the command, or one of these:"},
	{"65", "the output that once repeats is not complete"},
	{"70", "doctor found something broken, or demo failed"},
	{"71", "fencelock could not start its watchdog or get another resource"},
	{"74", "stdout could not be written"},
	{"75", "the lock is busy"},
	{"76", "the lock was lost"},
	{"124", "the command was stopped because of --max-hold"},
	{"128+n", "the command was killed by signal n"},
}

// startCodes are the exit codes of the verbs that start a command.
var startCodes = []Row{
	{"126", "the command cannot be executed"},
	{"127", "the command was not found"},
}

// addCommonCodes adds the exit codes that commands share to their annotations, and sorts them.
func addCommonCodes(root *cobra.Command) {
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		all := append(explanations(cmd.Annotations[ExitCodes]), commonCodes...)
		if cmd == root || cmd.Flags().Lookup("command") != nil {
			all = append(all, startCodes...)
		}
		sort.SliceStable(all, func(i, j int) bool {
			a, b := all[i].Word, all[j].Word
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0
		})
		if cmd.Annotations == nil {
			cmd.Annotations = map[string]string{}
		}
		cmd.Annotations[ExitCodes] = Table(all)
	}
}

// addHelp adds the verb help of cobra. Unlike cobra, it refuses an unknown verb.
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

// printHelp prints the help of a command.
func (a *App) printHelp(cmd *cobra.Command, _ []string) {
	_, a.helpFailed = io.WriteString(a.stdout, helpPage(cmd))
}

// helpPage returns the help of a command: what it does, examples, then all it takes.
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
	p.table(SabotageRows, cmd.Annotations[SabotageRows])
	p.table("Variables", cmd.Annotations[variables])
	p.table("Exit codes", cmd.Annotations[ExitCodes])
	if cmd.HasSubCommands() {
		p.WriteString("\nMore: fencelock COMMAND --help\n")
	}
	return p.String()
}

// page builds the help of a command.
type page struct{ strings.Builder }

// head starts a section.
func (p *page) head(title string) { p.WriteString("\n" + title + ":\n") }

// table adds a section with a table, unless the table is empty. A row without a word is printed as
// a sentence.
func (p *page) table(title, table string) {
	rows, width := explanations(table), 0
	if len(rows) == 0 {
		return
	}
	p.head(title)
	for _, r := range rows {
		width = max(width, len(r.Word))
	}
	for _, r := range rows {
		if r.Word == "" {
			p.WriteString("  " + wrap(r.Meaning, 2) + "\n")
			continue
		}
		p.row(width, r.Word, r.Meaning)
	}
}

// row adds a word and its meaning, which starts in the column after the widest word.
func (p *page) row(width int, word, meaning string) {
	fmt.Fprintf(p, "  %-*s  %s\n", width, word, wrap(meaning, width+4))
}

// flagColumn is the column in which the usage of a flag starts.
const flagColumn = 26

// flags adds a section of flags. The usage of a flag follows on the same line if the flag is short,
// or else on the next one.
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

// wrap breaks text into lines of at most helpWidth columns. It indents all but the first. A longer
// word gets its own line.
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
