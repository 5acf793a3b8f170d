//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Forwarded returns a channel that receives the signals to pass on to the command: all that a program
// can handle and that do not concern the resources of this process. A signal that arrives before the
// command has started is passed on later. The caller ends it with signal.Stop.
//
// TTOU is not among them: a terminal sends it for each attempt to write, so the write would never end.
func Forwarded() chan os.Signal {
	signals := make(chan os.Signal, 32)
	Notify(signals, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGALRM, unix.SIGVTALRM, unix.SIGIO)
	if runtime.GOOS == "linux" { // a power supply; real-time signals that a Go program can receive, since RTMIN+3 stops some containers
		Notify(signals, unix.SignalNum("SIGPWR"))
		const first, last = 35, 64
		for n := first; n <= last; n++ {
			Notify(signals, unix.Signal(n))
		}
	}
	Notify(signals, EndSignals...)
	return signals
}

// EndSignals are the signals that ask a process to end. ABRT is one of them: if it were not
// handled, a Go program would end without clean-up, and its place in a queue would stay until a
// timeout.
var EndSignals = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGABRT}

// Notify is signal.Notify, except for signals that were ignored when this process started: they
// stay ignored, as nohup expects. It ends the effect of ExitOnSignals.
func Notify(c chan<- os.Signal, signals ...os.Signal) {
	notify(c, signals)
	signal.Stop(early)
}

func notify(c chan<- os.Signal, signals []os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// early receives the signals of ExitOnSignals.
var early = make(chan os.Signal, 1)

// ExitOnSignals ends this process with the exit code of a signal that would make a Go program print
// its goroutines, if one arrives before the first call of Notify. The command calls it as it starts.
func ExitOnSignals() {
	notify(early, []os.Signal{unix.SIGQUIT, unix.SIGABRT})
	go func() { // ends with the process
		s := <-early
		os.Exit(128 + int(s.(unix.Signal)))
	}()
}

// StopOwnGroup stops the process group of this process, as the terminal does on Ctrl-Z, and returns
// when the group continues. If no shell controls the group, StopOwnGroup does not stop it, since
// nothing would continue it. Afterwards, the channel signals receives TSTP again.
func StopOwnGroup(signals chan<- os.Signal) {
	if orphaned() {
		time.Sleep(stopDelay) // limits the CPU use if the command stops again and again
		return
	}
	handled := !signal.Ignored(unix.SIGTSTP)
	signal.Ignore(unix.SIGTSTP)
	unix.Kill(0, unix.SIGTSTP)
	unix.Kill(os.Getpid(), unix.SIGSTOP)
	time.Sleep(stopDelay)
	if handled {
		signal.Notify(signals, unix.SIGTSTP)
	}
}

// stopDelay is how long a stop may take to reach this process.
const stopDelay = 50 * time.Millisecond

// orphaned reports whether no shell controls our process group: our first ancestor outside the
// group belongs to another session.
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
