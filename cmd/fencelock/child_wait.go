//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// waited is what the kernel told about one of our processes.
type waited struct {
	pid    int
	status unix.WaitStatus
}

// reap collects every process that is ours, each with mu held: the command, its
// watchdog, and the orphans we adopt. Its goroutine ends, and closes the channel, when
// none is left.
func reap(mu *sync.Mutex) <-chan waited {
	events := make(chan waited, 16)
	go func() {
		defer close(events)
		for {
			var status unix.WaitStatus
			pid, err := wait4(mu, &status)
			switch {
			case err == nil:
				events <- waited{pid, status}
			case errors.Is(err, unix.EINTR):
			default:
				return
			}
		}
	}()
	return events
}

// forwarded listens to the signals that are passed on to the command. What was
// ignored when we started stays ignored, as nohup wants it.
func forwarded() chan os.Signal {
	signals := make(chan os.Signal, 32)
	for _, s := range []os.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP,
	} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	return signals
}

// stopOwnGroup stops us and those we share a process group with, as the terminal
// would have done, and returns when we go on. A group that no shell could wake is
// not stopped.
func stopOwnGroup(signals chan<- os.Signal) {
	if orphaned() {
		time.Sleep(stopDelay) // do not spin with a command that stops again and again
		return
	}
	heard := !signal.Ignored(unix.SIGTSTP)
	signal.Ignore(unix.SIGTSTP)
	unix.Kill(0, unix.SIGTSTP)
	unix.Kill(os.Getpid(), unix.SIGSTOP)
	time.Sleep(stopDelay)
	if heard {
		signal.Notify(signals, unix.SIGTSTP)
	}
}

// stopDelay is how long a stop may take to reach us.
const stopDelay = 50 * time.Millisecond

// orphaned reports whether no shell controls our process group: the first of our
// ancestors outside the group is of another session.
func orphaned() bool {
	own, session := unix.Getpgrp(), sessionOf(0)
	for pid := os.Getppid(); pid > 0; {
		group, err := unix.Getpgid(pid)
		if err != nil || group != own {
			return err != nil || sessionOf(pid) != session
		}
		pid = parentOf(pid)
	}
	return true
}

func sessionOf(pid int) int {
	session, err := unix.Getsid(pid)
	if err != nil {
		return -1
	}
	return session
}
