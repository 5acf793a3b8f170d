//go:build unix

package supervise

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What a wrapper and its watchdog have agreed on.
const (
	WatchdogVariable = watchdogVariable
	HasKilled        = hasKilled
)

// Inheritable is inheritable.
var Inheritable = inheritable

// StartErrorOf is startError.
var StartErrorOf = startError

// EndAfter is how a command has ended whose watchdog ended too.
func EndAfter(watchdog, command unix.WaitStatus) End {
	p := &Process{status: command}
	p.onWatchdogEnd(waited{1, watchdog})
	return p.end()
}

// Watch has a watchdog hear lines, and returns whether it kills, and which group.
func Watch(lines <-chan string) (kills bool, group int) {
	w := patrol{due: math.MaxInt64}
	kills = w.watch(lines)
	return kills, w.group
}

// Told returns what a watchdog is told of a group and a deadline, and then at the end.
func Told(group int, deadline time.Time) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	dog := &watchdog{pipe: w}
	dog.inform(group, deadline)
	dog.inform(group, deadline) // which is no news
	dog.dismiss()
	text := make([]byte, 4096)
	n, err := r.Read(text)
	return string(text[:n]), err
}

// MetAgain reports whether a command whose group had gone still reaches it when another one has
// its number.
func MetAgain(gone, other int) bool {
	f := &family{command: gone, ended: true}
	f.left()
	f.command = other
	return f.signal(0) == nil
}

// BootTime is bootTime.
var BootTime = bootTime

// Freeze is a wrapper that stops itself between the start of its command and the
// moment when its watchdog would hear of it.
func Freeze() {
	w, err := startWatchdog()
	if err != nil {
		panic(err)
	}
	runtime.LockOSThread()                     // the kernel ties the parent-death signal to the thread that forks
	w.inform(0, time.Now().Add(8*time.Second)) // by then it has started it, and stands still
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attr)
	pid, err := startProcess("/bin/sleep", []string{"sleep", "600"}, &syscall.ProcAttr{Sys: attr})
	if err != nil {
		panic(err)
	}
	fmt.Println(pid)
	unix.Kill(os.Getpid(), unix.SIGSTOP)
	select {}
}
