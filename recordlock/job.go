package recordlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// answer is what a job makes of a state.
type answer int

const (
	waits   answer = iota // it is not done, and has changed nothing
	blind                 // the same, since the store's clock is not known
	joins                 // it is not done, and has changed the state
	refused               // it is done, and has changed nothing
	stored                // it is done once the state is stored
)

// job is one request of a process for one name. Its desk's mutex guards its fields.
type job struct {
	// apply applies the job to a state. It may be called again with a newer one.
	apply    func(st *state, m moment) (answer, error)
	answer   answer     // of the last call
	answered error      // the same
	acquires *acquiring // nil for the jobs that do something else

	after  int64         // the number of the desk's last request when it arrived; what refuses it must be newer
	sent   bool          // a Swap was sent that has its changes
	unsure bool          // the outcome of such a Swap is unknown
	left   bool          // its caller has gone
	until  time.Time     // when it is given up then, although it may not be done
	done   chan struct{} // closed when err is set
	err    error
	heard  driver.Waited // what the store has answered to it
}

// writes reports whether the job has changed the state that it was applied to.
func (j *job) writes() bool { return j.answer == joins || j.answer == stored }

// rank is 0 for the jobs that end something or keep a lease, for which others wait, and 1 for those
// that acquire.
func (j *job) rank() int {
	if j.acquires == nil || j.left {
		return 0
	}
	return 1
}

// finished reports whether the job is done.
func (j *job) finished() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

func notHeld(name string) error { return fmt.Errorf("%w: %q", driver.ErrNotHeld, name) }

// renewal returns a job that renews a lease.
func (d *desk) renewal(l driver.Lease) *job {
	return &job{apply: func(st *state, m moment) (answer, error) {
		h := st.holder(l.Owner)
		if h == nil || h.Token != l.Token {
			return refused, notHeld(st.Name)
		}
		h.renew(m)
		if own := d.holds[l.Owner]; own != nil {
			own.until = m.now.Add(own.ttl)
		}
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

// resizing returns a job that sets the limit of a name.
func resizing(limit int) *job {
	return &job{apply: func(st *state, _ moment) (answer, error) {
		if st.Limit == limit {
			return refused, nil
		}
		st.Limit = limit
		return stored, nil
	}}
}

// breaking is a break of the acquisition of one owner, or of all if owner is empty.
type breaking struct {
	job
	owner, reason string
	targets       []string
	closed        int64 // the beat of the minimum hold
	token         int64 // the result
}

// end ends acquisitions. If it is repeated after an attempt of unknown outcome, it ends only those
// that it has found before, and no successor.
func (b *breaking) end(st *state, m moment) (answer, error) {
	if !b.unsure {
		b.targets, b.closed = nil, 0
		for _, h := range st.Holders {
			if b.owner == "" || b.owner == h.Owner {
				b.targets = append(b.targets, h.Owner)
			}
		}
		if len(b.targets) == 0 && (b.owner != "" || st.Closed == nil) {
			return refused, notHeld(st.Name)
		}
		if st.Closed != nil {
			b.closed = st.Closed.Beat
		}
	}
	if m.blind() {
		return blind, nil
	}
	if st.Closed != nil && st.Closed.Beat == b.closed {
		st.Closed = nil
	}
	for _, owner := range b.targets {
		st.remove(owner)
	}
	b.token = st.issue(m)
	st.Broken, st.Reason = b.token, b.reason
	return stored, nil
}

// do gives a job to the desk of a name and waits until it is done or ctx ends.
func (e *Engine) do(ctx context.Context, name string, j *job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d := e.desk(name)
	d.submit(j)
	return d.await(ctx, j)
}

// await waits for a job. It gives up when ctx ends.
func (d *desk) await(ctx context.Context, j *job) error {
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if j.finished() {
		return j.err
	}
	j.left = true
	d.ring()
	_, trouble := j.heard.Last()
	return unavailable(errors.Join(trouble, ctx.Err()))
}

// unavailable returns an ErrUnavailable of one line that wraps err.
func unavailable(err error) error {
	if errors.Is(err, driver.ErrUnavailable) {
		return driver.OneLine(err)
	}
	return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, driver.OneLine(err))
}
