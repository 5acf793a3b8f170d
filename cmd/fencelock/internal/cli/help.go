//go:build unix

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// helpWidth is how many columns a help page takes.
const helpWidth = 80

// about is what there is to know before one knows any verb.
const about = "Locks that many processes share, with fencing tokens."

// aboutExamples are one of each use, the most common first.
var aboutExamples = []explained{
	{"fencelock run nightly -- ./backup.sh", "one backup at a time"},
	{"fencelock run -n nightly -- ./backup.sh", "or exit 75 at once"},
	{"fencelock elect billing -- ./billing", "one leader, and the others stand by"},
	{"fencelock ls", "who holds what"},
}

// aboutVariables are what the program itself finds in its environment.
var aboutVariables = []explained{
	{"FENCELOCK_URL", "where the locks are, if --url does not say"},
	{"XDG_STATE_HOME", "without a URL, locks are in its directory fencelock; those of root are in /var/lib/fencelock"},
}

// commonCodes are the exit codes of every verb.
var commonCodes = []explained{
	{"64", "the command line is wrong"},
	{"69", "the engine cannot be reached"},
	{"78", "a bad configuration, a missing right or a refused login"},
}

// verbCodes are the exit codes that only some verbs have.
var verbCodes = []explained{
	{"", "the command's own"},
	{"70", "doctor found something broken"},
	{"71", "something of fencelock's own did not start"},
	{"74", "what belongs on stdout could not be written"},
	{"75", "the lock is busy"},
	{"76", "the lock was lost"},
	{"126", "the command cannot be executed"},
	{"127", "the command was not found"},
	{"128+n", "the command died of signal n"},
}

// withCommonCodes puts exit codes and those of every verb in order.
func withCommonCodes(codes []explained) []explained {
	all := slices.Concat(codes, commonCodes)
	slices.SortStableFunc(all, func(a, b explained) int {
		return cmp.Or(cmp.Compare(len(a.word), len(b.word)), cmp.Compare(a.word, b.word))
	})
	return all
}

// shortHelp tells in a few lines what there is, for a bare "fencelock".
func shortHelp(w io.Writer, all []*verb) {
	fmt.Fprintln(w, "usage: fencelock COMMAND [ARGUMENTS]")
	for _, v := range all {
		fmt.Fprintf(w, "  %-11s %s\n", v.name, v.short)
	}
	fmt.Fprintln(w, "try: fencelock run nightly -- ./backup.sh, or fencelock --help")
}

// printHelp prints the page of the verb that was asked for, or the first one.
func printHelp(w io.Writer, l *line) error {
	var p page
	if l.verb == nil {
		p.first(l)
	} else {
		p.verb(l)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// first is the page of the program.
func (p *page) first(l *line) {
	p.WriteString("Usage: fencelock COMMAND [flags] [ARGUMENTS]\n\n" + about + "\n\n")
	p.table("", aboutExamples)
	group := ""
	for _, v := range l.verbs {
		if v.group != group {
			group = v.group
			p.head(group)
		}
		p.row(11, v.name, v.short)
	}
	p.head("Flags")
	p.flags(l.global)
	p.table("Variables", aboutVariables)
	p.table("Exit codes", withCommonCodes(verbCodes))
	p.WriteString("\nMore: fencelock COMMAND --help\n")
}

// verb is the page of a verb: what it does, examples, and then all it takes.
func (p *page) verb(l *line) {
	v := l.verb
	p.WriteString("Usage: " + usage(v) + "\n\n" + v.short + "\n")
	for _, paragraph := range v.paragraphs() {
		p.WriteString("\n" + wrap(paragraph, 0, helpWidth) + "\n")
	}
	p.head("Examples")
	for _, e := range v.examples {
		p.WriteString("  " + e + "\n")
	}
	p.table("Arguments", v.arguments())
	own := newFlagSet()
	l.flags.VisitAll(func(f *pflag.Flag) {
		if l.global.Lookup(f.Name) == nil {
			own.AddFlag(f)
		}
	})
	if own.HasFlags() {
		p.head("Flags")
		p.flags(own)
	}
	p.head("Flags of every command")
	p.flags(l.global)
	p.table("Variables of the command", v.variables)
	p.table("Exit codes", withCommonCodes(v.codes))
}

// usage is how the verb is written.
func usage(v *verb) string {
	words := []string{"fencelock", v.name, "[flags]"}
	for _, a := range v.args {
		if a.optional {
			words = append(words, "["+a.name+"]")
		} else {
			words = append(words, a.name)
		}
	}
	if v.runs != nil {
		words = append(words, "-- CMD [ARG]...")
	}
	return strings.Join(words, " ")
}

// page is a page of help that is being written.
type page struct{ strings.Builder }

// head begins a section.
func (p *page) head(title string) { p.WriteString("\n" + title + ":\n") }

// table writes words and what they mean below a title. A meaning without a word is a
// sentence for itself. An empty table is not there at all.
func (p *page) table(title string, rows []explained) {
	if len(rows) == 0 {
		return
	}
	if title != "" {
		p.head(title)
	}
	width := 0
	for _, r := range rows {
		width = max(width, len(r.word))
	}
	for _, r := range rows {
		if r.word == "" {
			p.WriteString("  " + wrap(r.meaning, 2, helpWidth) + "\n")
			continue
		}
		p.row(width, r.word, r.meaning)
	}
}

// row writes a word and what it means, in a column that begins behind the widest word.
func (p *page) row(width int, word, meaning string) {
	fmt.Fprintf(p, "  %-*s  %s\n", width, word, wrap(meaning, width+4, helpWidth))
}

// flagColumn is where the explanation of a flag begins.
const flagColumn = 26

// flags explains flags: a short one beside its explanation, a long one above it.
func (p *page) flags(f flagSet) {
	f.VisitAll(func(f *pflag.Flag) {
		word := "    " + longForm(f)
		if f.Shorthand != "" {
			word = "-" + f.Shorthand + ", " + longForm(f)
		}
		help := flagHelp(f)
		if len(word) > flagColumn-4 {
			fmt.Fprintf(p, "  %s\n%*s%s\n", word, flagColumn, "", wrap(help, flagColumn, helpWidth))
			return
		}
		p.row(flagColumn-4, word, help)
	})
}

// flagHelp is the explanation of a flag, with its preset.
func flagHelp(f *pflag.Flag) string {
	if f.DefValue == "" {
		return f.Usage
	}
	return f.Usage + " (default " + f.DefValue + ")"
}

// wrap breaks text into lines of at most width columns, of which all but the first are
// indented. A word that is longer has a line for itself.
func wrap(text string, indent, width int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
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
