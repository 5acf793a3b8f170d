//go:build unix

package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// A host starts servers outside of tests. It is a hosttest.TB.
type host struct {
	ctx    context.Context // ends with the host
	cancel context.CancelFunc

	mu       sync.Mutex // guards the rest
	cleanups []func()
	errs     []string
}

// fatal is the value with which Fatal panics.
type fatal struct{ text string }

// An Error says why a run could not go on.
type Error struct{ text string }

// Error returns the reason.
func (e *Error) Error() string { return e.text }

// on calls f with a host, and ends all that f has started. Its error is an *Error, or that of f.
func on(f func(h *host) error) (err error) {
	h := &host{}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err == nil && len(h.errs) > 0 {
			err = &Error{strings.Join(h.errs, "; ")}
		}
	}()
	defer h.end()
	return h.protect(func() error { return f(h) })
}

// protect calls f, and returns what it gave to Fatal.
func (h *host) protect(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fatal:
			err = &Error{p.text}
		default:
			panic(p)
		}
	}()
	return f()
}

// end does what Cleanup was given.
func (h *host) end() {
	h.cancel()
	for {
		h.mu.Lock()
		n := len(h.cleanups)
		if n == 0 {
			h.mu.Unlock()
			return
		}
		last := h.cleanups[n-1]
		h.cleanups = h.cleanups[:n-1]
		h.mu.Unlock()
		if err := h.protect(func() error { last(); return nil }); err != nil {
			h.Error(err)
		}
	}
}

func (h *host) Helper()                  {}
func (h *host) Name() string             { return "chaos" }
func (h *host) Context() context.Context { return h.ctx }
func (h *host) Logf(string, ...any)      {} // what tests log is for their authors

func (h *host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *host) Failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.errs) > 0
}

func (h *host) Error(args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (h *host) Errorf(format string, args ...any) { h.Error(fmt.Sprintf(format, args...)) }

func (h *host) Fatal(args ...any) { panic(fatal{strings.TrimSuffix(fmt.Sprintln(args...), "\n")}) }

func (h *host) Fatalf(format string, args ...any) { h.Fatal(fmt.Sprintf(format, args...)) }
