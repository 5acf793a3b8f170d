//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// watchCmd is the verb watch.
type watchCmd struct{ Prefix string }

func newWatch(a *App) *cobra.Command {
	c := new(watchCmd)
	return &cobra.Command{
		Use: "watch [flags] [PREFIX]", GroupID: SeeLocks, Short: "Print what happens to locks, one line per event.", SuggestFor: []string{"follow", "tail"},
		Long: `Prints the current holders and waiters first, then a line for each event: waiting, acquired, released, lost or left. Exits with 0 on INT or TERM, or when the reader of its output is gone.`,
		Example: `fencelock watch
fencelock watch invoice: --json | jq 'select(.event == "lost")'`,
		Annotations: map[string]string{argumentRows: Table([]Row{prefixRow})},
		Args:        Arguments(&c.Prefix), ValidArgsFunction: a.lockNames,
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
}

// Run prints events until INT or TERM arrives or the reader of stdout is gone. Both count as
// success.
func (c *watchCmd) Run(a *App) error {
	ctx, cancel := context.WithCancel(a.Context)
	defer cancel()
	OutliveReaders()
	go cancelOnHangup(a.stdout, cancel)
	return a.untilEnded(ctx, func(ctx context.Context, engine driver.Engine) error {
		for event, err := range fencelock.New(engine, nil).Watch(ctx, c.Prefix) {
			if err == nil {
				err = c.print(a, event)
			}
			switch {
			case ctx.Err() != nil || errors.Is(err, syscall.EPIPE):
				return nil
			case err != nil:
				return err
			}
		}
		return nil
	})
}

// cancelOnHangup calls cancel when w is a pipe and its reader is gone, so that "watch | head -1"
// ends without another event. It blocks until then, or until the process ends.
func cancelOnHangup(w io.Writer, cancel func()) {
	f := fileOf(w)
	if f == nil {
		return
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	_, err := unix.Poll(fds, -1)
	for err == unix.EINTR {
		_, err = unix.Poll(fds, -1)
	}
	if err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
		cancel()
	}
}

// eventView is driver.Event as --json prints it. docs/cli-json.md documents it.
type eventView struct {
	Time  stamp  `json:"time"`  // by the server's clock
	Event string `json:"event"` // a driver.EventKind
	Name  string `json:"name"`
	Owner string `json:"owner"` // the same from waiting to released, if the engine reports it
	Token int64  `json:"token"` // 0 for a waiter
	identityView
}

// print writes one event.
func (c *watchCmd) print(a *App, e driver.Event) error {
	line := fmt.Sprintf("%s %s %s", stamp(e.Time), e.Kind, termtext.Word(e.Name))
	if e.Token != 0 {
		line += fmt.Sprintf(" token=%d", e.Token)
	}
	line += fmt.Sprintf(" owner=%s %s", termtext.Word(e.Owner), place(e.Identity))
	if e.Note != "" {
		line += " " + termtext.Text(e.Note)
	}
	return a.Print(eventView{
		Time: stamp(e.Time), Event: string(e.Kind), Name: e.Name, Owner: e.Owner, Token: e.Token, identityView: viewOfIdentity(e.Identity),
	}, line+"\n")
}
