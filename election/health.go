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

// Check returns an error in two cases. One: the work of a lost term still runs more than tolerance
// after the loss, so this process acts as the leader without being it. Two: Run has returned
// ErrStuck and the work still runs, so nobody else can lead. A candidate that waits, leads or stops
// in time is healthy. Check does no I/O.
func (c *Candidate) Check(tolerance time.Duration) error {
	c.mu.Lock()
	term, stuck := c.term, c.stuck
	over := term == nil || term.left // the release may still be in progress
	c.mu.Unlock()
	if over {
		return nil
	}
	lost := term.lock.Err()
	if stuck {
		return fmt.Errorf("%w: %q: Run has returned without it: end this process (%w)", ErrStuck, c.name, cmp.Or(lost, errKept))
	}
	if !errors.Is(lost, fencelock.ErrLost) && !errors.Is(lost, fencelock.ErrMaxHold) {
		return nil
	}
	c.noteLoss(term) // in case its callback is late
	c.mu.Lock()
	defer c.mu.Unlock()
	if ago := time.Since(c.lost); c.term == term && ago > tolerance {
		return fmt.Errorf("%w: %q, %v after its end: %w", ErrStuck, c.name, ago.Round(time.Millisecond), lost)
	}
	return nil
}

// Ready returns an error if this candidate neither leads nor can become the leader: Run or Terms is
// not active, Run has returned ErrStuck, or the engine does not answer. Unless the candidate leads,
// Ready sends a request to the engine, bounded by ctx.
func (c *Candidate) Ready(ctx context.Context) error {
	if c.Term() != nil {
		return nil
	}
	c.mu.Lock()
	idle := c.state == Idle || c.stuck
	c.mu.Unlock()
	if idle {
		return fmt.Errorf("%w: the candidate for %q is not running: call Run or Terms", fencelock.ErrUnavailable, c.name)
	}
	if _, err := c.locks.Status(ctx, c.name); !errors.Is(err, fencelock.ErrUnsupported) {
		return err
	}
	return nil // an engine that cannot list
}

// errKept means that nobody else can lead.
var errKept = errors.New("nobody else can lead")

// Health returns a handler for liveness probes. It answers 200 with the candidate's state, or 503
// with the error of Check.
func (c *Candidate) Health(tolerance time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := c.Check(tolerance); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, c.State())
	})
}
