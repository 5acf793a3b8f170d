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

// Helper does nothing: there is no line of a test to report.
func (h *Host) Helper() {}

// Name returns the name.
func (h *Host) Name() string { return h.name }

// Context returns a context that ends with the host.
func (h *Host) Context() context.Context { return h.ctx }

// Logf does nothing: what tests log is for their authors.
func (h *Host) Logf(string, ...any) {}

// Cleanup makes f run at the end, before those that were added earlier.
func (h *Host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

// Failed reports whether there was an error.
func (h *Host) Failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.errs) > 0
}

// Errorf records an error.
func (h *Host) Errorf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, fmt.Errorf(format, args...))
}

// Fatalf records an error and ends the goroutine.
func (h *Host) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

// Error records an error.
func (h *Host) Error(args ...any) { h.Errorf("%s", fmt.Sprint(args...)) }

// Fatal records an error and ends the goroutine.
func (h *Host) Fatal(args ...any) { h.Fatalf("%s", fmt.Sprint(args...)) }
