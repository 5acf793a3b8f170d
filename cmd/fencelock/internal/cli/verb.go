//go:build unix

package cli

import (
	"slices"
	"strings"
)

// verb is a word that may follow fencelock. Parsing, help, man pages and completion
// know no more than what it says.
type verb struct {
	name  string
	group string           // the heading it stands under
	short string           // one line
	args  []arg            // what it takes, in order
	runs  *[]string        // gets the command that follows after --; nil: none does
	flags func(flagSet)    // adds its own; nil: it has none
	check func() error     // finds what the parser cannot; nil: nothing
	run   func(*app) error // is called when all was read and checked

	long      string      // paragraphs, with an empty line between them
	examples  []string    // whole command lines, the simplest first
	variables []explained // what the command finds in its environment
	codes     []explained // exit codes that not all verbs have
}

// arg is an argument.
type arg struct {
	name     string             // what stands for it
	help     string             // one sentence
	optional bool               // none that must be given comes after it
	values   []string           // all there are, or those worth offering
	lock     bool               // it is the name of a lock, or the beginning of one
	verbs    bool               // it is the name of a verb
	set      func(string) error // takes the word, or says what is wrong with it
}

// explained is a word with what it means.
type explained struct{ word, meaning string }

// The headings that verbs stand under.
const (
	useLocks = "Use locks"
	seeLocks = "See and manage locks"
	moreVerb = "More"
)

// verbNames returns the names of verbs, in their order.
func verbNames(all []*verb) (names []string) {
	for _, v := range all {
		names = append(names, v.name)
	}
	return names
}

// findVerb returns the verb of that name, or nil.
func findVerb(all []*verb, name string) *verb {
	if i := slices.IndexFunc(all, func(v *verb) bool { return v.name == name }); i >= 0 {
		return all[i]
	}
	return nil
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
