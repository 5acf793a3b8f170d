package recordlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// answer is what a job makes of a state.
type answer int

const (
	unapplied   answer = iota
	waits              // it is not done, and has changed nothing
	awaitsClock        // the same, since the store's clock is not known
	joins              // it is not done, and has changed the state
	refused            // it is done, and has changed nothing
	stored             // it is done once the state is stored
)

// job is one request of a process for one name. The mutex of its worker guards its fields.
type job struct {
	// apply applies the job to a state. It may be called again with a newer one.
	apply    func(st *state, m moment) (answer, error)
	answer   answer     // of the last call
	err      error      // the same, and the result
	acquires *acquiring // nil for the jobs that do something else

	after  int64         // the number of the worker's last request when it arrived; what refuses it must be newer
	unsure bool          // the outcome of a Swap that has its changes is unknown
	until  time.Time     // when it is given up, although it may not be done; zero if its caller waits
	done   chan struct{} // closed when ended is set
	ended  bool
	waited driver.Waited // what the store has answered to it
}

// writes reports whether the job has changed the state that it was applied to.
func (j *job) writes() bool { return j.answer == joins || j.answer == stored }

// urgent reports whether the job ends something, for which others wait, or keeps a lease. The other
// jobs acquire.
func (j *job) urgent() bool { return j.acquires == nil }

func notHeld(name string) error { return fmt.Errorf("%w: %q", driver.ErrNotHeld, name) }

// renewal returns a job that renews a lease.
func renewal(l driver.Lease) *job {
	return &job{apply: func(st *state, m moment) (answer, error) {
		h := st.holder(l.Owner)
		if h == nil || h.Token != l.Token {
			return refused, notHeld(st.Name)
		}
		h.renew(m)
		return stored, nil
	}}
}

// leaving returns a job that ends an acquisition.
func leaving(l driver.Lease) *job {
	j := &job{}
	j.apply = func(st *state, _ moment) (answer, error) {
		h := st.holder(l.Owner)
		switch {
		case h != nil && h.Token == l.Token:
			st.remove(l.Owner)
			return stored, nil
		case j.unsure:
			return refused, nil // an earlier attempt has ended it
		}
		return refused, notHeld(st.Name)
	}
	return j
}

// breaking returns a job that ends the acquisition of one owner, or all if owner is empty. If it is
// repeated after an attempt of unknown outcome, it ends only those that it has found before, and no
// successor. It sets token to the one that it issues. If the earlier attempt was executed, that is the
// token of then: a new one would be greater than that of a successor, whose writes guards would refuse.
func breaking(owner, reason string, token *int64) *job {
	j := &job{}
	var targets []string
	var issued []int64
	j.apply = func(st *state, m moment) (answer, error) {
		if !j.unsure {
			targets = nil
			for _, h := range st.Holders {
				if owner == "" || owner == h.Owner {
					targets = append(targets, h.Owner)
				}
			}
			if st.Closed != nil && (owner == "" || len(targets) > 0) {
				targets = append(targets, st.Closed.Owner)
			}
			if len(targets) == 0 {
				return refused, notHeld(st.Name)
			}
		}
		found := func(owner string) bool {
			return st.holder(owner) != nil || st.Closed != nil && st.Closed.Owner == owner
		}
		switch {
		case m.clockUnknown():
			return awaitsClock, nil
		case slices.ContainsFunc(targets, found): // always in the first attempt
		case slices.Contains(issued, st.Broken):
			*token = st.Broken
			return refused, nil
		default:
			return refused, notHeld(st.Name)
		}
		for _, owner := range targets {
			st.undo(owner)
		}
		*token = st.issue(m)
		issued = append(issued, *token)
		st.Broken, st.Reason = *token, reason
		return stored, nil
	}
	return j
}

// do gives a job to the worker of a name and waits until it is done or ctx ends.
func (e *Engine) do(ctx context.Context, name string, j *job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := e.worker(name)
	w.submit(j)
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.ended {
		return j.err
	}
	j.until = time.Now()
	w.notify()
	return j.waited.Ended(ctx, nil)
}
