package election

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fencelock/fencelock"
)

// Check returns an error if the work of a lost term still runs more than
// tolerance after the loss: such a process acts as a leader and is none. A
// candidate that waits, leads or stops cleanly is healthy. It does no I/O.
func (c *Candidate) Check(tolerance time.Duration) error {
	c.mu.Lock()
	term := c.term
	c.mu.Unlock()
	if term == nil {
		return nil
	}
	lost := term.lock.Err()
	if !errors.Is(lost, fencelock.ErrLost) {
		return nil
	}
	c.noteLoss(term) // if its timer is late
	c.mu.Lock()
	defer c.mu.Unlock()
	if over := time.Since(c.lost); c.term == term && over > tolerance {
		return fmt.Errorf("%w: %q, %v after its end: %w", ErrStuck, c.name, over.Round(time.Millisecond), lost)
	}
	return nil
}

// Health returns a handler for liveness probes: 200 with the candidate's state,
// or 503 with the error of Check.
func (c *Candidate) Health(tolerance time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := c.Check(tolerance); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, c.State())
	})
}
