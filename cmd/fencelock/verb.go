//go:build unix

package main

import (
	"slices"
	"strings"
)

// verb is a word that may follow fencelock. Parsing, help, man pages and completion
// know no more than what it says.
type verb struct {
	name  string
	group string    // the heading it stands under
	short string    // one line
	args  []arg     // what it takes, in order
	runs  *[]string // gets the command that follows after --; nil: none does
	flags func(flagSet)
	check func() error // finds what the parser cannot
	run   func(*app) error

	long      string // paragraphs
	examples  []string
	variables []explained // what the command finds in its environment
	codes     []explained // exit codes that not all verbs have
}

// arg is an argument.
type arg struct {
	name     string // what stands for it
	help     string
	optional bool
	values   []string // all there are, or those worth offering
	lock     bool     // it is the name of a lock, or the beginning of one
	verbs    bool     // it is the name of a verb
	set      func(string) error
}

// explained is a word with what it means.
type explained struct{ word, meaning string }

// The headings that verbs stand under.
const (
	useLocks = "Use locks"
	seeLocks = "See and manage locks"
	moreVerb = "More"
)

// verbs returns every verb, in the order people read them.
func verbs() []*verb {
	return []*verb{
		newRun().verb(), newElect().verb(), newLimit().verb(),
		new(lsCmd).verb(), new(statusCmd).verb(), new(watchCmd).verb(), new(breakCmd).verb(),
		new(resizeCmd).verb(), new(initCmd).verb(), newDoctor().verb(),
		new(completionCmd).verb(), new(manCmd).verb(), new(versionCmd).verb(),
	}
}

// verbNames returns the names of all verbs.
func verbNames(all []*verb) (names []string) {
	for _, v := range all {
		names = append(names, v.name)
	}
	return names
}

func findVerb(all []*verb, name string) *verb {
	if i := slices.IndexFunc(all, func(v *verb) bool { return v.name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// usage is how the verb is written.
func (v *verb) usage() string {
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

// paragraphs are those of the longer text.
func (v *verb) paragraphs() []string {
	if v.long == "" {
		return nil
	}
	return strings.Split(v.long, "\n\n")
}

// arguments explains what follows the verb.
func (v *verb) arguments() (rows []explained) {
	for _, a := range v.args {
		rows = append(rows, explained{a.name, a.help})
	}
	if v.runs != nil {
		rows = append(rows, explained{"CMD", "The command and its arguments, after --."})
	}
	return rows
}

// nameArg is the name of a lock.
func nameArg(p *string) arg {
	return arg{name: "NAME", help: "The name of the lock.", lock: true, set: setText(p)}
}

// prefixArg is the beginning of names of locks.
func prefixArg(p *string) arg {
	return arg{name: "PREFIX", help: "Only names that begin with this.", optional: true, lock: true, set: setText(p)}
}

func setText(p *string) func(string) error {
	return func(s string) error {
		*p = s
		return nil
	}
}
