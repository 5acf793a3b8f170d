package hosttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// A Host starts servers outside of tests. It is a [TB].
type Host struct {
	name   string
	ctx    context.Context // ends with the host
	cancel context.CancelFunc

	mu       sync.Mutex // guards the rest
	cleanups []func()
	errs     []error
}

// On calls f with a host, and ends all that f has started. Its error is what f gave to Fatal, or the
// failures.
func On(name string, f func(h *Host)) error {
	h := &Host{name: name}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with f, or as soon as that has called Fatal
		defer close(done)
		defer h.end()
		f(h)
	}()
	<-done
	return errors.Join(h.errs...)
}

// end does what Cleanup was given, also if some of it ends the goroutine by Fatal.
func (h *Host) end() {
	h.cancel()
	h.mu.Lock()
	n := len(h.cleanups)
	if n == 0 {
		h.mu.Unlock()
		return
	}
	last := h.cleanups[n-1]
	h.cleanups = h.cleanups[:n-1]
	h.mu.Unlock()
	defer h.end()
	last()
}

func (h *Host) Helper()                  {}
func (h *Host) Name() string             { return h.name }
func (h *Host) Context() context.Context { return h.ctx }
func (h *Host) Logf(string, ...any)      {} // what tests log is for their authors

func (h *Host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *Host) Failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.errs) > 0
}

func (h *Host) Errorf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, fmt.Errorf(format, args...))
}

func (h *Host) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

func (h *Host) Error(args ...any) { h.Errorf("%s", fmt.Sprint(args...)) }
func (h *Host) Fatal(args ...any) { h.Fatalf("%s", fmt.Sprint(args...)) }
