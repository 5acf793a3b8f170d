//go:build unix

package cli

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
)

// The groups of verbs in help.
const (
	useLocks = "Use locks"
	SeeLocks = "See and manage locks"
	moreVerb = "More"
)

func init() { cobra.EnableCommandSorting = false } // help shows verbs in the order of newRoot

// New returns the tree of commands, for programs that document it.
func New() *cobra.Command { return newRoot(new(App)) }

// newRoot returns the tree of commands, verbs among them. It parses the flags of every command into a.
func newRoot(a *App, verbs ...Verb) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use: "fencelock COMMAND [flags] [ARGUMENTS]", Short: "Run commands under locks that many processes share, with fencing tokens.",
		Long: `A DURATION is 30s, 1m30s, 12h, 2d, or a number of seconds.

fencelock-all has two verbs more: chaos tests an engine under faults, and verify checks a log. To get it: ` + engineurl.InstallAll + `.`,
		Example: `fencelock run nightly -- ./backup.sh     one backup at a time
fencelock run -n nightly -- ./backup.sh  or exit 75 at once
fencelock elect billing -- ./billing     one leader; the others wait
fencelock ls                             who holds what`,
		Annotations: map[string]string{
			variables: Table([]Row{
				{"FENCELOCK_URL", "the URL of the locks, if --url is not given"},
				{"XDG_STATE_HOME", "without a URL, the locks are in its subdirectory fencelock; those of root are in /var/lib/fencelock"},
			}),
			ExitCodes: Table(verbCodes),
		},
		Args: noVerb, PersistentPreRunE: checkFlags,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case version:
				return a.printVersion()
			case cmd.Flags().NFlag() == 0:
				_, _ = io.WriteString(a.Stderr, helpPage(cmd))
				return Exit(ExitUsage, nil)
			}
			return &misuse{error: errors.New("a command is missing, such as run or ls")}
		},
		SuggestionsMinimumDistance: 1, // the verbs are short
		TraverseChildren:           true, SilenceErrors: true, SilenceUsage: true, DisableAutoGenTag: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.Flags().SetInterspersed(false) // or a flag after a wrong verb would be reported instead of the verb
	a.addFlags(root)
	root.Flags().BoolVar(&version, "version", false, "Print the version.")
	root.SetHelpFunc(a.printHelp)
	root.AddGroup(&cobra.Group{ID: useLocks, Title: useLocks}, &cobra.Group{ID: SeeLocks, Title: SeeLocks}, &cobra.Group{ID: moreVerb, Title: moreVerb})
	root.AddCommand(
		newRun(a), newElect(a), newOnce(a), newAcquire(a), newRenew(a), newRelease(a), newLimit(a), newPipe(a),
		newLs(a), newStatus(a), newHolds(a), newWatch(a), newUI(a), newBreak(a), newJobs(a), newResign(a), newResize(a), newInit(a), newDoctor(a),
		newDemo(a), newCompletion(a), newVersion(a),
	)
	for _, verb := range verbs {
		root.AddCommand(verb(a))
	}
	for _, verb := range root.Commands() {
		verb.Flags().SortFlags = false
	}
	addHelp(root)
	addCommonCodes(root)
	return root
}

// addFlags adds the flags that every command has.
func (a *App) addFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVar(&a.URL, "url", os.Getenv("FENCELOCK_URL"), "`URL` of the locks, such as file:///path. Default: a directory of this user on this host. ($FENCELOCK_URL)")
	f.Lookup("url").DefValue = "" // it may hold a password
	_ = root.RegisterFlagCompletionFunc("url", cobra.FixedCompletions(engineurl.Beginnings(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	f.BoolVar(&a.json, "json", false, "Print JSON, one object per line.")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "Print more on stderr.")
	f.BoolP("help", "h", false, "Show this help.")
	root.Flags().SortFlags = false
	root.Flags().AddFlagSet(f)
}

// checkFlags refuses a command line without a required flag, and an empty URL.
func checkFlags(cmd *cobra.Command, _ []string) error {
	if cmd.Name() == cobra.ShellCompRequestCmd { // completion runs no command, so words after the name may be parsed as flags
		for _, verb := range cmd.Root().Commands() {
			verb.Flags().SetInterspersed(true)
		}
		return nil
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return &misuse{error: err}
	}
	if cmd.HasParent() && cmd.Root().Flags().Changed("version") {
		return &misuse{error: errors.New("--version cannot be used with a command")}
	}
	if url := cmd.Flag("url"); url.Changed && url.Value.String() == "" { // such as "$LOCKS", which is not set
		return &misuse{error: errors.New("--url is empty; write a URL, or omit the flag to use FENCELOCK_URL or the locks of this host")}
	}
	return nil
}
