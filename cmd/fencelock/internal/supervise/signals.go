//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// Forwarded listens to the signals that are passed on to the command, from now on: one
// that comes before the command has started reaches it then. signal.Stop ends it.
func Forwarded() chan os.Signal {
	signals := make(chan os.Signal, 32)
	Notify(signals, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP)
	Notify(signals, EndSignals...)
	return signals
}

// EndSignals ask a process to end. ABRT does too: a program that it ends by itself leaves its place
// in a queue to a timeout.
var EndSignals = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGABRT}

// Notify is signal.Notify, but for signals that were ignored when we started: they stay ignored, as
// nohup wants it.
func Notify(c chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// StopOwnGroup stops us and those we share a process group with, as the terminal
// would have done on Ctrl-Z, and returns when we go on. A group that no shell could wake
// is not stopped. signals hears TSTP again afterwards.
func StopOwnGroup(signals chan<- os.Signal) {
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
