//go:build unix

package cli

import (
	_ "embed"
	"io"
)

// completionCmd prints what makes a shell complete our words.
type completionCmd struct{ Shell string }

// verb describes completion.
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
	_, err := io.WriteString(a.stdout, completionScripts[c.Shell])
	return err
}

// The scripts ask "fencelock __complete" for words, and know no verb themselves: a new
// fencelock completes its new flags with an old script.

//go:embed completion.bash
var bashScript string

//go:embed completion.zsh
var zshScript string

//go:embed completion.fish
var fishScript string

// completionScripts is the scripts by the names of their shells.
var completionScripts = map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
