//go:build unix

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/cmd/internal/demo"
)

// demoCmd is the verb demo.
type demoCmd struct {
	Fast bool // no pauses for readers
}

func newDemo(a *App) *cobra.Command {
	c := new(demoCmd)
	cmd := &cobra.Command{
		Use: "demo [flags]", GroupID: moreVerb, Short: "Show in half a minute what happens when a holder freezes.",
		Long: `Starts two workers that write files under one lock, freezes the one that holds it, and prints what happens: the lease expires, the other worker acquires the lock with a greater fencing token, and the file with a guard refuses the late write of the first. A file without a guard accepts it.

Needs no server and ignores --url: the workers are processes of fencelock, the lock server is part of demo, and the files are in a temporary directory. demo removes all of them, also after Ctrl-C.`,
		Annotations: map[string]string{ExitCodes: Table([]Row{{"70", "a step did not end as expected"}})},
		Args:        Arguments(),
		RunE:        func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().BoolVar(&c.Fast, "fast", false, "Do not pause for readers.")
	return cmd
}

// demoView is demo.Line as --json prints it. docs/cli-json.md documents it.
type demoView struct {
	At   int64  `json:"at_ms"` // since the start
	Who  string `json:"who"`
	Text string `json:"text"`
}

// Run plays the demo. A signal, or an output that nobody reads, ends it.
func (c *demoCmd) Run(a *App) error {
	ctx, stop := EndedBySignals(a.Context)
	defer stop()
	OutliveReaders()
	err := demo.Run(ctx, !c.Fast, func(l demo.Line) error {
		return a.Print(demoView{l.At.Milliseconds(), l.Who, l.Text}, fmt.Sprintf("%4.1f s  %-11s  %s\n", l.At.Seconds(), l.Who, l.Text))
	})
	if ended := Ended(ctx, errors.New("the demo was interrupted")); ended != nil {
		return ended
	}
	if _, ok := errors.AsType[*exitError](err); err == nil || ok {
		return err
	}
	return Exit(ExitBroken, err)
}
