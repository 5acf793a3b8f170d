//go:build unix

package supervise

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// waited is what the kernel told about one of our processes.
type waited struct {
	pid    int
	status unix.WaitStatus
}

// gone reports whether the process has ended, and was not only stopped.
func (ev waited) gone() bool { return ev.status.Exited() || ev.status.Signaled() }

// children collects every child of this process, the orphans it adopts among them. There is one
// for all Processes, one after the other: beside strangers it goes on when a command has ended,
// and a second one could take the end of the next command from it.
var children = reaper{known: make(map[int]bool)}

type reaper struct {
	mu     sync.Mutex   // guards events and known; held while a child is collected, listed or signalled by number
	events chan waited  // nil while nobody collects
	known  map[int]bool // children that were not collected yet, and whose changes are events
}

// start starts a process, and returns what becomes of it and of other known children. The
// channel is closed when no child is left.
func (r *reaper) start(f func() (int, error)) (int, <-chan waited, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := f()
	if err != nil {
		return 0, nil, err
	}
	r.known[pid] = true
	if r.events == nil {
		r.events = make(chan waited, 16)
		go r.run(r.events) // ends when no child is left
	}
	return pid, r.events, nil
}

// adopt makes the changes of one more process events, should it become a child.
func (r *reaper) adopt(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[pid] = true
}

// signalGroup signals the group that a known child leads.
func (r *reaper) signalGroup(pid int, sig unix.Signal) error { return r.kill(pid, -pid, sig) }

// signal signals a known child.
func (r *reaper) signal(pid int, sig unix.Signal) error { return r.kill(pid, pid, sig) }

// kill signals to, which is child or the group that it leads. Once the child was collected, its
// number may be that of another process or group, so the error is ESRCH then.
func (r *reaper) kill(child, to int, sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if child <= 1 || !r.known[child] {
		return unix.ESRCH
	}
	return unix.Kill(to, sig)
}

// run collects until no child is left.
func (r *reaper) run(events chan<- waited) {
	defer close(events)
	for {
		var status unix.WaitStatus
		pid, err := r.next(&status)
		if err != nil && !errors.Is(err, unix.EINTR) {
			pid, err = r.last(&status)
		}
		switch {
		case err == nil && pid > 0:
			events <- waited{pid, status}
		case err != nil && !errors.Is(err, unix.EINTR):
			return
		}
	}
}

// last looks again whether a child is left, since one may have been started meanwhile.
// After an error of this, start makes another reaper run.
func (r *reaper) last(status *unix.WaitStatus) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := r.collect(status)
	if err != nil && !errors.Is(err, unix.EINTR) {
		r.events = nil
	}
	return pid, err
}

// collect takes one change without waiting. mu is held.
func (r *reaper) collect(status *unix.WaitStatus) (int, error) {
	pid, err := unix.Wait4(-1, status, unix.WUNTRACED|unix.WCONTINUED|unix.WNOHANG, nil)
	return r.note(pid, *status), err
}

// note notes a change, and returns pid, or 0 for a child that is not known. mu is held.
func (r *reaper) note(pid int, status unix.WaitStatus) int {
	if !r.known[pid] {
		return 0
	}
	if (waited{pid, status}).gone() {
		delete(r.known, pid)
	}
	return pid
}
