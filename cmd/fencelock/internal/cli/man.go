//go:build unix

package cli

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
)

// manCmd prints pages for man, in the language of mdoc(7). They are made of the same
// descriptions as the help, so there is nothing to keep in step.
type manCmd struct{ Verb string } // "" is the page of the program

// verb describes man.
func (c *manCmd) verb() *verb {
	return &verb{
		name: "man", group: moreVerb, short: "Print a manual page.",
		args: []arg{{
			name: "COMMAND", help: "The page of this command; without it, the first one.", optional: true,
			verbs: true, set: setText(&c.Verb),
		}},
		run:      c.Run,
		examples: []string{"fencelock man run | man -l -", "fencelock man run >/usr/local/share/man/man1/fencelock-run.1"},
	}
}

// Run prints the page.
func (c *manCmd) Run(a *app) error {
	v := findVerb(a.verbs, c.Verb)
	if c.Verb != "" && v == nil {
		return &exitError{code: exitUsage, err: fmt.Errorf("there is no command %s\ntry: fencelock --help", termtext.Word(c.Verb))}
	}
	var p manPage
	p.head(v)
	if v == nil {
		p.first(a.verbs)
	} else {
		p.verb(v)
	}
	_, err := io.WriteString(a.stdout, p.String())
	return err
}

// manPage is a page that is being written.
type manPage struct{ strings.Builder }

// line writes a line for the formatter.
func (p *manPage) line(words ...string) { p.WriteString(strings.Join(words, " ") + "\n") }

// head begins a page; the day is that of the program, so that a page can be made again.
func (p *manPage) head(v *verb) {
	name, short := "fencelock", about
	if v != nil {
		name, short = name+"-"+v.name, v.short
	}
	// mdoc wants these three in this order, and the name before anything else.
	p.line(".Dd", builtOn().Format("January 2, 2006"))
	p.line(".Dt", strings.ToUpper(name), "1")
	p.line(".Os")
	p.line(".Sh NAME")
	p.line(".Nm", name)
	p.line(".Nd", manText(strings.ToLower(short[:1])+strings.TrimSuffix(short[1:], ".")))
}

// builtOn is the day of the commit, where the build knows it, and else today.
func builtOn() time.Time {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if at, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				return at
			}
		}
	}
	return time.Now()
}

// first is the page of the program.
func (p *manPage) first(all []*verb) {
	p.line(".Sh SYNOPSIS")
	p.line(".Nm")
	p.line(".Ar command")
	p.line(".Op Ar flags")
	p.line(".Op Ar arguments")
	p.line(".Sh DESCRIPTION")
	p.text("The commands, each with a page of its own:")
	p.line(".Bl -tag -width completion")
	for _, v := range all {
		p.line(".It Cm", v.name)
		p.text(v.short)
	}
	p.line(".El")
	l := line{verbs: all}
	l.begin()
	p.flags("Every command takes these:", l.global)
	p.explain("ENVIRONMENT", ".It Ev", aboutVariables)
	p.codes(withCommonCodes(verbCodes))
	p.line(".Sh EXAMPLES")
	p.line(".Bl -tag -width Ds")
	for _, e := range aboutExamples {
		p.line(".It Li", manText(e.word))
		p.text(e.meaning)
	}
	p.line(".El")
	p.line(".Sh SEE ALSO")
	names := slices.Sorted(slices.Values(verbNames(all)))
	for _, name := range names[:len(names)-1] {
		p.line(".Xr fencelock-"+name, "1 ,")
	}
	p.line(".Xr fencelock-"+names[len(names)-1], "1")
}

// verb is the page of a verb.
func (p *manPage) verb(v *verb) {
	p.line(".Sh SYNOPSIS")
	p.line(".Nm fencelock", v.name)
	p.line(".Op Ar flags")
	for _, a := range v.args {
		if a.optional {
			p.line(".Op Ar", a.name)
		} else {
			p.line(".Ar", a.name)
		}
	}
	if v.runs != nil {
		p.line(".Fl -")
		p.line(".Ar CMD Op Ar ARG ...")
	}
	p.line(".Sh DESCRIPTION")
	p.text(v.short)
	for _, paragraph := range v.paragraphs() {
		p.line(".Pp")
		p.text(paragraph)
	}
	p.explain("ARGUMENTS", ".It Ar", v.arguments())
	if v.flags != nil {
		own := newFlagSet()
		v.flags(own)
		p.flags("Beside those of every command:", own)
	}
	p.explain("ENVIRONMENT", ".It Ev", v.variables)
	p.codes(withCommonCodes(v.codes))
	if len(v.examples) > 0 {
		p.line(".Sh EXAMPLES")
		p.line(".Bd -literal -offset indent")
		for _, e := range v.examples {
			p.line(manText(e))
		}
		p.line(".Ed")
	}
	p.line(".Sh SEE ALSO")
	p.line(".Xr fencelock 1")
}

// flags writes the section of flags. A flag with a value is shown with its long name.
func (p *manPage) flags(intro string, f flagSet) {
	p.line(".Sh FLAGS")
	p.text(intro)
	p.line(".Bl -tag -width Ds")
	f.VisitAll(func(f *pflag.Flag) {
		item := ".It Fl -" + f.Name
		if f.Shorthand != "" {
			item = ".It Fl " + f.Shorthand + " , Fl -" + f.Name
		}
		if f.Value.Type() != "" {
			item += " Ns = Ns Ar " + f.Value.Type()
		}
		p.line(item)
		p.text(flagHelp(f))
	})
	p.line(".El")
}

// codes writes the section of exit codes.
func (p *manPage) codes(codes []explained) { p.explain("EXIT STATUS", ".It", codes) }

// explain writes a section of words and what they mean. An empty one is not there at all.
func (p *manPage) explain(title, item string, rows []explained) {
	if len(rows) == 0 {
		return
	}
	p.line(".Sh", title)
	p.line(".Bl -tag -width Ds")
	for _, r := range rows {
		if r.word == "" {
			r.word = "n"
		}
		p.line(item, manText(r.word))
		p.text(r.meaning)
	}
	p.line(".El")
}

// text writes sentences, each on a line of its own as mdoc asks, and long ones on several.
func (p *manPage) text(s string) {
	for _, sentence := range sentences(s) {
		for row := range strings.Lines(wrap(sentence, 0, 78) + "\n") {
			p.WriteString(manText(row))
		}
	}
}

// sentences divides a text where a point is followed by a capital letter.
func sentences(s string) (all []string) {
	from := 0
	for i := range len(s) - 2 {
		if s[i] == '.' && s[i+1] == ' ' && s[i+2] >= 'A' && s[i+2] <= 'Z' {
			all = append(all, s[from:i+1])
			from = i + 2
		}
	}
	return append(all, s[from:])
}

// manText is text that the formatter leaves as it is: a hyphen is no dash, quotes stay as
// a shell needs them, and a point at the beginning of a line is no command.
func manText(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
