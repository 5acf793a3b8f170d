//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// completeVerb is what the scripts of "fencelock completion" call, with the words that
// follow fencelock, up to the one that is typed. It prints the words that fit, a line
// each, with a tab and what they mean; or, where a command is typed that is not ours,
// ":command N", and N words stand before it.
const completeVerb = "__complete"

// printCompletions answers a script. It never fails because of what was typed: a shell
// shows no errors while a line is written.
func printCompletions(w io.Writer, all []*verb, words []string) error {
	found, before := complete(all, words)
	if before > 0 {
		_, err := fmt.Fprintf(w, ":command %d\n", before)
		return err
	}
	var b strings.Builder
	for _, c := range found {
		fmt.Fprintf(&b, "%s\t%s\n", c.word, c.meaning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// complete returns what the last word may become. If that belongs to a command that
// runs under a lock, it returns how many words stand before that command instead.
func complete(all []*verb, words []string) (found []explained, before int) {
	if len(words) == 0 {
		words = []string{""}
	}
	typed := words[len(words)-1] // all words before it are complete
	c := &partial{line: line{verbs: all}}
	c.begin()
	for i, word := range words[:len(words)-1] {
		if c.read(word); c.command {
			return nil, i + 1
		}
	}
	if c.atCommand() && (c.ended || typed != "" && typed[0] != '-') {
		return nil, len(words)
	}
	for _, e := range c.choices(typed) {
		if strings.HasPrefix(e.word, typed) && e.word != "" {
			found = append(found, e)
		}
	}
	return found, 0
}

// partial is a command line that is not complete yet.
type partial struct {
	line
	given   int         // arguments of the verb so far
	waiting *pflag.Flag // its value comes next
	ended   bool        // -- was read
	command bool        // a word of the command was read
	lost    bool        // there is no such verb
}

// read reads a word that is complete, as line.read would, but takes what is wrong: the
// next word may be completed all the same.
func (c *partial) read(word string) {
	switch {
	case c.waiting != nil:
		_ = c.waiting.Value.Set(word) // a wrong one is not ours to refuse
		c.waiting = nil
	case c.ended || word == "-" || !strings.HasPrefix(word, "-"):
		c.readArgument(word)
	case word == "--":
		c.ended = true
	case strings.HasPrefix(word, "--"):
		name, value, given := strings.Cut(word[2:], "=")
		c.readFlag(c.flags.Lookup(name), value, given)
	default:
		c.readShort(word[1:])
	}
}

// readArgument reads a word that is no flag: the verb, then its arguments, then the command.
func (c *partial) readArgument(word string) {
	switch {
	case c.verb == nil:
		c.setVerb(word)
		c.lost = c.lost || c.verb == nil
	case c.atCommand():
		c.command = true
	default:
		c.given++
	}
}

// readShort reads flags of one letter, of which the last may take a value.
func (c *partial) readShort(letters string) {
	for i := range len(letters) {
		f := c.flags.ShorthandLookup(letters[i : i+1])
		if f == nil || f.NoOptDefVal == "" {
			c.readFlag(f, letters[i+1:], i+1 < len(letters))
			return
		}
	}
}

// readFlag reads a flag; one that takes a value and was given none waits for it.
func (c *partial) readFlag(f *pflag.Flag, value string, given bool) {
	switch {
	case f == nil || f.NoOptDefVal != "":
	case given:
		_ = f.Value.Set(value)
	default:
		c.waiting = f
	}
}

// atCommand reports whether the next argument begins the command. From there on the shell
// completes as if that stood alone.
func (c *partial) atCommand() bool {
	return c.verb != nil && c.verb.runs != nil && c.given >= len(c.verb.args)
}

// choices returns what may stand where typed stands.
func (c *partial) choices(typed string) (all []explained) {
	name, _, valued := strings.Cut(typed, "=")
	switch {
	case c.lost:
		return nil
	case c.waiting != nil:
		return valuesOf(c.waiting, "")
	case !c.ended && valued && strings.HasPrefix(typed, "--"):
		if f := c.flags.Lookup(name[2:]); f != nil {
			return valuesOf(f, name+"=")
		}
		return nil
	case !c.ended && strings.HasPrefix(typed, "-"):
		return c.flagChoices()
	case c.verb == nil:
		return verbChoices(c.verbs)
	case c.atCommand():
		return []explained{{"--", "the command follows"}}
	case c.given < len(c.verb.args):
		return c.argumentChoices(c.verb.args[c.given], typed)
	}
	return nil
}

// verbChoices returns the names of all verbs.
func verbChoices(verbs []*verb) (all []explained) {
	for _, v := range verbs {
		all = append(all, explained{v.name, v.short})
	}
	return all
}

// valuesOf returns the values worth offering for a flag, each with before in front of it.
func valuesOf(f *pflag.Flag, before string) (all []explained) {
	for _, v := range f.Value.(*option).values {
		all = append(all, explained{before + v, ""})
	}
	return all
}

// flagChoices returns the flags that may stand here, by both of their names.
func (c *partial) flagChoices() (all []explained) {
	c.flags.VisitAll(func(f *pflag.Flag) {
		all = append(all, explained{"--" + f.Name, f.Usage})
		if f.Shorthand != "" {
			all = append(all, explained{"-" + f.Shorthand, f.Usage})
		}
	})
	if c.atCommand() {
		all = append(all, explained{"--", "the command follows"})
	}
	return all
}

// argumentChoices returns what an argument may be.
func (c *partial) argumentChoices(a arg, typed string) (all []explained) {
	for _, v := range a.values {
		all = append(all, explained{v, ""})
	}
	if a.verbs {
		all = append(all, verbChoices(c.verbs)...)
	}
	if a.lock {
		all = append(all, c.lockNames(typed)...)
	}
	return all
}

// completePatience is how long the engine may take to tell names. The shell stands still
// meanwhile, and Ctrl-C ends it.
const completePatience = 10 * time.Second

// lockNames asks the engine for names. A name may be a piece of script, such as
// $(reboot), so only those of harmless characters are offered.
func (c *partial) lockNames(prefix string) (all []explained) {
	ctx, stop := context.WithTimeout(context.Background(), completePatience)
	defer stop()
	a := &app{ctx: ctx, url: strings.Trim(c.givenURL(), `'"`)}
	var list []fencelock.Status
	_ = a.within(ctx, func(engine driver.Engine) (err error) { // whoever completes wants no errors
		list, err = fencelock.New(engine, nil).List(ctx, prefix)
		return err
	})
	for _, s := range list {
		if s.Name[0] != '-' && termtext.ShellWord(s.Name) == s.Name {
			all = append(all, explained{s.Name, modeLimit(s)})
		}
	}
	return all
}
