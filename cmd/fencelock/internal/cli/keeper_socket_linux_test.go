package cli

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"

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
