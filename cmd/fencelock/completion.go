//go:build unix

package main

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is the longer text of "fencelock completion --help".
func (completionCmd) Help() string {
	return `Names of locks are completed by asking the engine of FENCELOCK_URL.

    source <(fencelock completion bash)
    source <(fencelock completion zsh)
    fencelock completion fish | source`
}

// Run prints the script for the shell.
func (c completionCmd) Run(a *app, parser *kong.Kong) error {
	print := map[string]func(*kong.Node) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
	_, err := io.WriteString(a.stdout, print[c.Shell](parser.Model.Node))
	return err
}

// named tells the commands whose first argument is the name of a lock.
func named(cmd *kong.Node) bool {
	return len(cmd.Positional) > 0 && (cmd.Positional[0].Name == "name" || cmd.Positional[0].Name == "prefix")
}

// words is every word that may follow cmd: its flags, those of its parents, and
// the values of its first argument where they are fixed.
func words(cmd *kong.Node) []string {
	var out []string
	for _, group := range cmd.AllFlags(true) {
		for _, f := range group {
			out = append(out, "--"+f.Name)
			if f.Short != 0 {
				out = append(out, "-"+string(f.Short))
			}
		}
	}
	if len(cmd.Positional) > 0 && cmd.Positional[0].Enum != "" {
		out = append(out, cmd.Positional[0].EnumSlice()...)
	}
	return out
}

// lockNames is how a script learns the names of the locks there are. Bash
// expands the words it is given, so a name such as $(reboot) must not get there:
// only names of harmless characters do.
const lockNames = `fencelock ls 2>/dev/null | awk 'NR > 1 && $1 ~ /^[A-Za-z0-9_.:\/@%+,=-]+$/ && !seen[$1]++ { print $1 }'`

//go:embed completion.bash
var bashFrame string

func bashScript(root *kong.Node) string {
	var cases strings.Builder
	var commands, names []string
	for _, cmd := range root.Children {
		commands = append(commands, cmd.Name)
		if named(cmd) {
			names = append(names, cmd.Name)
		}
		fmt.Fprintf(&cases, "        %s) words='%s' ;;\n", cmd.Name, strings.Join(words(cmd), " "))
	}
	return strings.NewReplacer(
		"@COMMANDS@", strings.Join(append(commands, words(root)...), " "),
		"@NAMED@", strings.Join(names, "|"),
		"@CASES@", strings.TrimSuffix(cases.String(), "\n"),
		"@LOCKS@", lockNames,
	).Replace(bashFrame)
}

//go:embed completion.zsh
var zshFrame string

func zshScript(root *kong.Node) string {
	var commands, cases strings.Builder
	var names []string
	for _, cmd := range root.Children {
		fmt.Fprintf(&commands, "        %s\n", quote(cmd.Name+":"+cmd.Help))
		fmt.Fprintf(&cases, "        %s) compadd -- %s ;;\n", cmd.Name, strings.Join(words(cmd), " "))
		if named(cmd) {
			names = append(names, cmd.Name)
		}
	}
	return strings.NewReplacer(
		"@COMMANDS@", strings.TrimSuffix(commands.String(), "\n"),
		"@NAMED@", strings.Join(names, "|"),
		"@CASES@", strings.TrimSuffix(cases.String(), "\n"),
		"@LOCKS@", lockNames,
	).Replace(zshFrame)
}

func fishScript(root *kong.Node) string {
	var b strings.Builder
	b.WriteString("# fish completion for fencelock\ncomplete -c fencelock -f\n")
	for _, f := range root.Flags {
		fishFlag(&b, "", f)
	}
	for _, cmd := range root.Children {
		fmt.Fprintf(&b, "complete -c fencelock -n __fish_use_subcommand -a %s -d %s\n", cmd.Name, quote(cmd.Help))
		seen := "__fish_seen_subcommand_from " + cmd.Name
		for _, f := range cmd.Flags {
			fishFlag(&b, seen, f)
		}
		if named(cmd) {
			fmt.Fprintf(&b, "complete -c fencelock -n %s -a %s\n", quote(seen), quote("("+lockNames+")"))
		}
		if len(cmd.Positional) > 0 && cmd.Positional[0].Enum != "" {
			fmt.Fprintf(&b, "complete -c fencelock -n %s -a %s\n", quote(seen), quote(strings.Join(cmd.Positional[0].EnumSlice(), " ")))
		}
	}
	return b.String()
}

func fishFlag(b *strings.Builder, condition string, f *kong.Flag) {
	b.WriteString("complete -c fencelock")
	if condition != "" {
		b.WriteString(" -n " + quote(condition))
	}
	b.WriteString(" -l " + f.Name)
	if f.Short != 0 {
		b.WriteString(" -s " + string(f.Short))
	}
	if !f.IsBool() {
		b.WriteString(" -x")
	}
	b.WriteString(" -d " + quote(f.Help) + "\n")
}

// quote returns s as one single-quoted word of all three shells.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}
