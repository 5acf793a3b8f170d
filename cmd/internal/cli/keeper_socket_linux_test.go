package cli

import (
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// TestAskKeeper: a keeper on the same host gets the request and answers it. Without a keeper there
// is no answer.
func TestAskKeeper(t *testing.T) {
	for _, want := range []string{answerReleased, answerLost, answerUnavailable + " the server does not answer", ""} {
		owner := uuid.NewString()
		requests, stop := listenForRequests(owner)
		go func() { // ends with the question below
			r := <-requests
			if r.text != "renew 500" {
				t.Errorf("the request is %q", r.text)
			}
			r.answer(want + "\n")
		}()
		if got, ok := askKeeper(owner, "renew 500", time.Minute, func() {}); got != want || !ok {
			t.Errorf("answered %q, %v, want %q", got, ok, want)
		}
		stop()
		if got, ok := askKeeper(owner, "release", time.Minute, func() {}); got != "" || ok {
			t.Errorf("without a keeper: %q, %v", got, ok)
		}
	}
}

// TestRootAsksAKeeperOfAnotherUser: root can set the maximum hold of a keeper of another user.
func TestRootAsksAKeeperOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this user is not root")
	}
	owner := uuid.NewString()
	runtime.LockOSThread()
	_, _, failed := unix.RawSyscall(unix.SYS_SETREUID, ^uintptr(0), 65534, 0) // of this thread, which makes the socket
	requests, stop := listenForRequests(owner)
	_, _, back := unix.RawSyscall(unix.SYS_SETREUID, ^uintptr(0), 0, 0)
	runtime.UnlockOSThread()
	if failed != 0 || back != 0 {
		t.Fatal(failed, back)
	}
	defer stop()
	go func() { (<-requests).answer(answerRenewed + "\n") }() // ends with the first question
	if got, ok := askKeeper(owner, "renew 500", time.Minute, func() {}); got != answerRenewed || !ok {
		t.Errorf("answered %q, %v", got, ok)
	}
	if got, ok := askKeeper(owner, askRelease, time.Minute, func() {}); ok {
		t.Errorf("root relies on %q", got)
	}
}

// TestKeeperIgnoresHalfARequest: a connection without a whole line is no request, and does not
// delay the next one.
func TestKeeperIgnoresHalfARequest(t *testing.T) {
	owner := uuid.NewString()
	requests, stop := listenForRequests(owner)
	defer stop()
	silent, err := net.Dial("unix", socketOf(owner))
	must(t, err)
	defer silent.Close()
	half, err := net.Dial("unix", socketOf(owner))
	must(t, err)
	_, err = io.WriteString(half, "release")
	must(t, err)
	must(t, half.Close())
	go func() { (<-requests).answer("whole\n") }() // ends with the question below
	if got, ok := askKeeper(owner, "left", time.Minute, func() {}); got != "whole" || !ok {
		t.Errorf("answered %q, %v", got, ok)
	}
}

// TestKeeperThatDoesNotAnswer: the caller learns that the answer takes long, and gets none.
func TestKeeperThatDoesNotAnswer(t *testing.T) {
	owner := uuid.NewString()
	_, stop := listenForRequests(owner) // nobody reads its requests
	defer stop()
	told := make(chan struct{})
	if got, ok := askKeeper(owner, "release", 1500*time.Millisecond, func() { close(told) }); ok {
		t.Errorf("answered %q", got)
	}
	<-told
}

// TestLateRequest: a request is not wanted any more once its asker has given up. A keeper does not
// change its maximum hold then.
func TestLateRequest(t *testing.T) {
	owner := uuid.NewString()
	requests, stop := listenForRequests(owner)
	defer stop()
	conn, err := net.Dial("unix", socketOf(owner))
	must(t, err)
	_, err = io.WriteString(conn, "renew 3600000\n")
	must(t, err)
	r := <-requests
	if !r.wanted() {
		t.Error("the asker waits, but its request is not wanted")
	}
	must(t, conn.Close())
	if r.wanted() {
		t.Error("the asker has given up, but its request is wanted")
	}
	lock, err := fencelock.New(memlock.New(nil), nil).Acquire(t.Context(), "x")
	must(t, err)
	until := time.Now().Add(time.Minute)
	k := &keeper{lock: lock, until: until}
	if k.serve(r, false) || k.until != until {
		t.Error("a late request was served")
	}
}
