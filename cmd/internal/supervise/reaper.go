//go:build unix

package supervise

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// change is a change of one of our processes, as wait reports it.
type change struct {
	pid    int
	status unix.WaitStatus
}

// gone reports whether the process has ended. It is false if the process was only stopped or
// continued.
func (ev change) gone() bool { return ev.status.Exited() || ev.status.Signaled() }

// children reaps every child of this process, including adopted orphans. All Processes share it,
// since a second reaper could reap a command of the first and its exit status would be lost.
var children = reaper{known: make(map[int]bool)}

type reaper struct {
	mu     sync.Mutex   // guards events and known; held while a child is reaped, listed or signalled by number
	events chan change  // nil while run is not running
	known  map[int]bool // children that have not been reaped, and whose changes are reported
}

// start calls f to start a process, and returns a channel with the changes of this and all other
// known children. The channel is closed when no child is left.
func (r *reaper) start(f func() (int, error)) (int, <-chan change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := f()
	if err != nil {
		return 0, nil, err
	}
	r.known[pid] = true
	if r.events == nil {
		r.events = make(chan change, 16)
		go r.run(r.events) // ends when no child is left
	}
	return pid, r.events, nil
}

// adopt makes pid a known child, so that its changes are reported if this process adopts it.
func (r *reaper) adopt(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[pid] = true
}

// signalGroup signals the group of a known child.
func (r *reaper) signalGroup(pid int, sig unix.Signal) error { return r.kill(pid, -pid, sig) }

// signal signals a known child.
func (r *reaper) signal(pid int, sig unix.Signal) error { return r.kill(pid, pid, sig) }

// kill signals to, which is child or -child for its group. If child is not known or has been
// reaped, kill returns ESRCH, since the kernel may have reused its number.
func (r *reaper) kill(child, to int, sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if child <= 1 || !r.known[child] {
		return unix.ESRCH
	}
	return unix.Kill(to, sig)
}

// run reaps until no child is left.
func (r *reaper) run(events chan<- change) {
	defer close(events)
	for {
		var status unix.WaitStatus
		pid, err := r.next(&status)
		if err != nil && !errors.Is(err, unix.EINTR) {
			pid, err = r.last(&status)
		}
		switch {
		case err == nil && pid > 0:
			events <- change{pid, status}
		case err != nil && !errors.Is(err, unix.EINTR):
			return
		}
	}
}

// last checks once more whether a child is left, since one may have been started after the last
// check. If none is left, the next call of start starts another run.
func (r *reaper) last(status *unix.WaitStatus) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := r.collect(status)
	if err != nil && !errors.Is(err, unix.EINTR) {
		r.events = nil
	}
	return pid, err
}

// collect reads one change without blocking. mu is held.
func (r *reaper) collect(status *unix.WaitStatus) (int, error) {
	pid, err := unix.Wait4(-1, status, unix.WUNTRACED|unix.WCONTINUED|unix.WNOHANG, nil)
	return r.note(pid, *status), err
}

// note records a change and returns pid, or 0 for an unknown child. mu is held.
func (r *reaper) note(pid int, status unix.WaitStatus) int {
	if !r.known[pid] {
		return 0
	}
	if (change{pid, status}).gone() {
		delete(r.known, pid)
	}
	return pid
}
