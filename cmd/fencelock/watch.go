//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

type watchCmd struct{ Prefix string }

func (c *watchCmd) verb() *verb {
	return &verb{
		name: "watch", group: seeLocks, short: "Follow what happens to locks, a line for each event.",
		args: []arg{prefixArg(&c.Prefix)}, run: c.Run,
		long:     `Begins with what stands already, then prints a line for each event: waiting, acquired, released, lost, left. Ends on INT or TERM, or when its reader is gone, with exit code 0.`,
		examples: []string{"fencelock watch", `fencelock watch invoice: --json | jq 'select(.event == "lost")'`},
	}
}

// Run prints events until it is told to stop.
func (c *watchCmd) Run(a *app) error {
	ctx, stop := a.interruptible()
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer signal.Stop(quietPipe())
	go cancelOnHangup(a.stdout, cancel)

	err := a.with(ctx, func(engine driver.Engine) error {
		for event, err := range fencelock.New(engine, nil).Watch(ctx, c.Prefix) {
			if err == nil {
				err = a.printEvent(event)
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
	return err
}

// quietPipe makes a write to a closed pipe an error instead of our death, until
// the channel is stopped.
func quietPipe() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGPIPE)
	return c
}

// cancelOnHangup calls cancel when w is a pipe whose reader has gone, so that
// "watch | head -1" ends without waiting for one more event. It ends then, or
// with the process.
func cancelOnHangup(w io.Writer, cancel func()) {
	f, ok := w.(*os.File)
	if !ok {
		return
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case err == unix.EINTR:
		case err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
			cancel()
			return
		default:
			return
		}
	}
}

// eventView is driver.Event as --json prints it; docs/cli-json.md documents it.
type eventView struct {
	Time  stamp  `json:"time"`
	Event string `json:"event"`
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Token int64  `json:"token"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Note  string `json:"note"`
}

func (a *app) printEvent(e driver.Event) error {
	if a.json {
		return printJSON(a.stdout, eventView{
			Time: stamp(e.Time), Event: string(e.Kind), Name: e.Name, Owner: e.Owner,
			Token: e.Token, Host: e.Host, PID: e.PID, Note: e.Note,
		})
	}
	line := fmt.Sprintf("%s %s %s", stamp(e.Time), e.Kind, show(e.Name))
	if e.Token != 0 {
		line += fmt.Sprintf(" token=%d", e.Token)
	}
	line += fmt.Sprintf(" owner=%s %s", show(e.Owner), place(e.Identity))
	if e.Note != "" {
		line += " " + showText(e.Note)
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}
