//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// keeperRequest is what another command asks a keeper on the same host. The answer is a line:
//
//	release    released; lost; unavailable TEXT
//	renew MS   renewed; lost; over
//	left       MS, what is left of the maximum hold
//
// A keeper answers anything else with an empty line.
type keeperRequest struct {
	text   string
	answer func(line string)
	wanted func() bool // false once the asker has given up, as after a pause of the keeper
}

// The words of requests and answers.
const (
	askRelease = "release"
	askRenew   = "renew"
	askLeft    = "left"

	answerReleased    = "released"
	answerUnavailable = "unavailable"
	answerRenewed     = "renewed"
	answerLost        = "lost"
	answerOver        = "over"
)

// keeperLimit is how long a keeper may take to answer: the release timeout of the lock and a
// second.
const keeperLimit = 6 * time.Second

// renewLimit is how long a keeper may take to answer renew, which asks no server.
const renewLimit = 2 * time.Second

// leftLimit is how long a list waits for the answer of one keeper, which may be stopped.
const leftLimit = 500 * time.Millisecond

// serve answers a request, and reports whether it has released the lock. stopping is set if the
// lock is about to be released anyway. The keeper releases the lock itself, since a message through
// the server could be lost, and the keeper would report a lost lock.
func (k *keeper) serve(r keeperRequest, stopping bool) (released bool) {
	verb, value, _ := strings.Cut(r.text, " ")
	if !r.wanted() { // the asker has reported a failure, so nothing may change
		verb = ""
	}
	switch verb {
	case askRelease:
		r.answer(releaseAnswer(k.release()) + "\n")
		return true
	case askRenew:
		r.answer(k.renew(value, stopping) + "\n")
	case askLeft:
		r.answer(strconv.FormatInt(time.Until(k.until).Milliseconds(), 10) + "\n")
	default:
		r.answer("\n")
	}
	return false
}

// releaseAnswer returns the answer after a release.
func releaseAnswer(err error) string {
	switch {
	case err == nil:
		return answerReleased
	case errors.Is(err, driver.ErrNotHeld):
		return answerLost
	}
	return answerUnavailable + " " + strings.ReplaceAll(err.Error(), "\n", " ")
}

// renew sets the maximum hold, in milliseconds from now, and returns the answer.
func (k *keeper) renew(ms string, stopping bool) string {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n <= 0 || n > driver.MaxDuration.Milliseconds() {
		return ""
	}
	if stopping && k.lock.Err() == nil {
		return answerOver
	}
	maxHold := time.Duration(n) * time.Millisecond
	switch err := k.lock.SetMaxHold(maxHold); {
	case err == nil:
		k.until = time.Now().Add(maxHold)
		return answerRenewed
	case errors.Is(err, fencelock.ErrMaxHold):
		return answerOver
	}
	return answerLost
}

// refreshMaxHolds replaces the maximum holds of keepers on this host by the present ones, which renew
// may have changed. Elsewhere lists show the maximum of the acquisition.
func refreshMaxHolds(list []fencelock.Status) {
	host, err := os.Hostname()
	if err != nil {
		return
	}
	for _, s := range list {
		for i, h := range s.Holders {
			if h.MaxHold == 0 || h.Host != host {
				continue
			}
			answer, ok := askKeeper(h.Owner, askLeft, leftLimit, func() {})
			if ms, err := strconv.ParseInt(answer, 10, 64); ok && err == nil {
				s.Holders[i].MaxHold = max(1, time.Since(h.Since)+time.Duration(ms)*time.Millisecond)
			}
		}
	}
}

// handle is the argument of release and renew.
type handle struct{ text string }

// parts returns the owner and the name in a handle.
func (h *handle) parts() (owner, name string) {
	owner, name, _ = strings.Cut(h.text, ":")
	return owner, name
}

// check validates the handle.
func (h *handle) check() error {
	if owner, name := h.parts(); owner == "" || strings.ContainsAny(owner, " \n") || driver.CheckName(name) != nil {
		return fmt.Errorf("%s is not a handle; write the last word that fencelock acquire printed, in quotes", termtext.Word(h.text))
	}
	return nil
}

// lost is the error for an acquisition that has ended.
func (h *handle) lost() error {
	_, name := h.parts()
	return Exit(exitLost, fmt.Errorf("the lock %s of this handle was lost or released before", termtext.Word(name)))
}
