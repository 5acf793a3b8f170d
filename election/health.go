package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fencelock/fencelock"
)

// Check returns an error if the work of a lost term still runs more than
// tolerance after the loss: such a process acts as a leader and is none. It also
// does so once Run has returned ErrStuck and the work still runs: such a process
// keeps everybody else from leading. A candidate that waits, leads or stops cleanly is
// healthy. It does no I/O.
func (c *Candidate) Check(tolerance time.Duration) error {
	c.mu.Lock()
	term, stuck := c.term, c.stuck
	over := term == nil || term.left // the engine may be slow to take the name back
	c.mu.Unlock()
	if over {
		return nil
	}
	lost := term.lock.Err()
	if stuck {
		return fmt.Errorf("%w: %q: Run has given it up: end this process (%w)", ErrStuck, c.name, cmp.Or(lost, errKept))
	}
	if !errors.Is(lost, fencelock.ErrLost) {
		return nil
	}
	c.noteLoss(term) // if its timer is late
	c.mu.Lock()
	defer c.mu.Unlock()
	if ago := time.Since(c.lost); c.term == term && ago > tolerance {
		return fmt.Errorf("%w: %q, %v after its end: %w", ErrStuck, c.name, ago.Round(time.Millisecond), lost)
	}
	return nil
}

// Ready returns an error if this candidate neither leads nor could: Run or Terms is
// not at work or has returned ErrStuck, or the engine does not answer. It asks the engine, no longer than ctx
// lasts, unless the candidate leads.
func (c *Candidate) Ready(ctx context.Context) error {
	if c.Term() != nil {
		return nil
	}
	c.mu.Lock()
	idle := c.state == Idle || c.stuck
	c.mu.Unlock()
	if idle {
		return fmt.Errorf("%w: the candidate for %q does not campaign", fencelock.ErrUnavailable, c.name)
	}
	if _, err := c.locks.Status(ctx, c.name); !errors.Is(err, fencelock.ErrUnsupported) {
		return err
	}
	return nil // an engine that lists nothing
}

// errKept says that nobody else can lead.
var errKept = errors.New("it keeps the name")

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
