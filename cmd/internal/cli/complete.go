//go:build unix

package cli

import (
	"context"
	"embed"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

func newCompletion(a *App) *cobra.Command {
	var shell string
	return &cobra.Command{
		Use: "completion [flags] SHELL", GroupID: moreVerb, Short: "Print a completion script for bash, zsh, fish or powershell.",
		Long: `Names of locks are completed by asking the server of FENCELOCK_URL. In bash, the package bash-completion must be installed. Words after -- are completed as a command of their own, except in powershell.`,
		Example: `source <(fencelock completion bash)
source <(fencelock completion zsh)
fencelock completion fish | source
fencelock completion powershell | Out-String | Invoke-Expression`,
		Annotations: map[string]string{argumentRows: Table([]Row{{"SHELL", "bash, zsh, fish or powershell."}})},
		Args:        Arguments(&shell), ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, _ []string) error { return printScript(cmd, shell, a.stdout) },
	}
}

// printScript prints the completion script of cobra for a shell. The script runs "fencelock
// __complete", so an old script knows the flags of a new fencelock.
func printScript(cmd *cobra.Command, shell string, w io.Writer) (err error) {
	switch root := cmd.Root(); shell {
	case "bash":
		err = root.GenBashCompletionV2(w, true)
	case "zsh":
		err = root.GenZshCompletion(w)
	case "fish":
		err = root.GenFishCompletion(w, true)
	case "powershell":
		err = root.GenPowerShellCompletionWithDesc(w)
	default:
		return &misuse{error: fmt.Errorf("SHELL: %q is not one of %s", shell, strings.Join(cmd.ValidArgs, ", "))}
	}
	if err != nil {
		return err
	}
	own, err := commandScripts.ReadFile("completion/own." + shell)
	if err == nil {
		_, err = w.Write(own)
	}
	return err
}

// commandScripts are appended to the scripts of cobra, for two reasons. The scripts of cobra do not
// complete the words after -- as a command. And they evaluate what was typed, at each tab: a $(...)
// would be run, and in fish a line after -c too. So a line with such words is not completed.
//
//go:embed completion
var commandScripts embed.FS

// completeCommand completes the name before a command by names. The shell completes files after it.
func completeCommand(names cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return names(cmd, args, typed)
	}
}

// completePatience is how long the server may take to list names. The shell is blocked during that
// time; Ctrl-C ends it.
const completePatience = 10 * time.Second

// lockNames completes names of locks. A name may be a piece of a script, such as $(reboot), so it
// offers only names of harmless characters.
func (a *App) lockNames(_ *cobra.Command, args []string, prefix string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, stop := context.WithTimeout(a.Context, completePatience)
	defer stop()
	var list []fencelock.Status
	_ = a.within(ctx, func(engine driver.Engine) (err error) { // completion shows no errors
		list, err = fencelock.New(engine, nil).List(ctx, prefix)
		return err
	})
	for _, s := range list {
		if s.Name[0] != '-' && termtext.ShellWord(s.Name) == s.Name {
			names = append(names, cobra.CompletionWithDesc(s.Name, modeLimit(s, 1)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
