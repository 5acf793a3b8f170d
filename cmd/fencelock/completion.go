//go:build unix

package main

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

type completionCmd struct{ Shell string }

func (c *completionCmd) verb() *verb {
	shells := []string{"bash", "zsh", "fish"}
	return &verb{
		name: "completion", group: moreVerb, short: "Print a completion script for bash, zsh or fish.",
		args: []arg{{name: "SHELL", help: "bash, zsh or fish.", values: shells, set: choice(&c.Shell, "", shells...).set}},
		run:  c.Run,
		long: "Names of locks are completed by asking the engine of FENCELOCK_URL.",
		examples: []string{
			"source <(fencelock completion bash)",
			"source <(fencelock completion zsh)",
			"fencelock completion fish | source",
		},
	}
}

// Run prints the script for the shell.
func (c *completionCmd) Run(a *app) error {
	print := map[string]func([]*verb) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
	_, err := io.WriteString(a.stdout, print[c.Shell](verbs()))
	return err
}

// named tells the commands whose first argument is the name of a lock.
func named(v *verb) bool { return len(v.args) > 0 && v.args[0].lock }

// flagsOf returns the flags of a verb, or with nil those that all have.
func flagsOf(v *verb) (all []*pflag.Flag) {
	f := newFlagSet()
	if v == nil {
		new(line).addGlobal(f)
	} else if v.flags != nil {
		v.flags(f)
	}
	f.VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	return all
}

// words is every word that may follow v: its flags, those of all, and the values of its
// first argument where they are fixed.
func words(v *verb) []string {
	var out []string
	flags := flagsOf(nil)
	if v != nil {
		flags = append(flags, flagsOf(v)...)
	}
	for _, f := range flags {
		out = append(out, "--"+f.Name)
		if f.Shorthand != "" {
			out = append(out, "-"+f.Shorthand)
		}
	}
	if v != nil && len(v.args) > 0 {
		out = append(out, v.args[0].values...)
	}
	return out
}

// lockNames is how a script learns the names of the locks there are. Bash
// expands the words it is given, so a name such as $(reboot) must not get there:
// only names of harmless characters do.
const lockNames = `fencelock ls 2>/dev/null | awk 'NR > 1 && $1 ~ /^[A-Za-z0-9_.:\/@%+,=-]+$/ && !seen[$1]++ { print $1 }'`

//go:embed completion.bash
var bashFrame string

func bashScript(all []*verb) string {
	var cases strings.Builder
	var commands, names []string
	for _, cmd := range all {
		commands = append(commands, cmd.name)
		if named(cmd) {
			names = append(names, cmd.name)
		}
		fmt.Fprintf(&cases, "        %s) words='%s' ;;\n", cmd.name, strings.Join(words(cmd), " "))
	}
	return strings.NewReplacer(
		"@COMMANDS@", strings.Join(append(commands, words(nil)...), " "),
		"@NAMED@", strings.Join(names, "|"),
		"@CASES@", strings.TrimSuffix(cases.String(), "\n"),
		"@LOCKS@", lockNames,
	).Replace(bashFrame)
}

//go:embed completion.zsh
var zshFrame string

func zshScript(all []*verb) string {
	var commands, cases strings.Builder
	var names []string
	for _, cmd := range all {
		fmt.Fprintf(&commands, "        %s\n", quote(cmd.name+":"+cmd.short))
		fmt.Fprintf(&cases, "        %s) compadd -- %s ;;\n", cmd.name, strings.Join(words(cmd), " "))
		if named(cmd) {
			names = append(names, cmd.name)
		}
	}
	return strings.NewReplacer(
		"@COMMANDS@", strings.TrimSuffix(commands.String(), "\n"),
		"@NAMED@", strings.Join(names, "|"),
		"@CASES@", strings.TrimSuffix(cases.String(), "\n"),
		"@LOCKS@", lockNames,
	).Replace(zshFrame)
}

func fishScript(all []*verb) string {
	var b strings.Builder
	b.WriteString("# fish completion for fencelock\ncomplete -c fencelock -f\n")
	for _, f := range flagsOf(nil) {
		fishFlag(&b, "", f)
	}
	for _, cmd := range all {
		fmt.Fprintf(&b, "complete -c fencelock -n __fish_use_subcommand -a %s -d %s\n", cmd.name, quote(cmd.short))
		seen := "__fish_seen_subcommand_from " + cmd.name
		for _, f := range flagsOf(cmd) {
			fishFlag(&b, seen, f)
		}
		if named(cmd) {
			fmt.Fprintf(&b, "complete -c fencelock -n %s -a %s\n", quote(seen), quote("("+lockNames+")"))
		}
		if len(cmd.args) > 0 && len(cmd.args[0].values) > 0 {
			fmt.Fprintf(&b, "complete -c fencelock -n %s -a %s\n", quote(seen), quote(strings.Join(cmd.args[0].values, " ")))
		}
	}
	return b.String()
}

func fishFlag(b *strings.Builder, condition string, f *pflag.Flag) {
	b.WriteString("complete -c fencelock")
	if condition != "" {
		b.WriteString(" -n " + quote(condition))
	}
	b.WriteString(" -l " + f.Name)
	if f.Shorthand != "" {
		b.WriteString(" -s " + f.Shorthand)
	}
	if f.NoOptDefVal == "" {
		b.WriteString(" -x")
	}
	b.WriteString(" -d " + quote(f.Usage) + "\n")
}

// quote returns s as one single-quoted word of all three shells.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}
