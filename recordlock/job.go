package recordlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// answer is what a job makes of a state.
type answer int

const (
	waits   answer = iota // it is not done, and has changed nothing
	joins                 // it is not done, and has changed the state
	refused               // it is done, and has changed nothing
	stored                // it is done once the state is stored
)

// action is what a job does with the state of its name. It may be called several times, each time
// with a newer state. unsure means that the store may have executed an earlier call.
type action interface {
	apply(st *state, m moment, unsure bool) (answer, error)
	// settle is called when the result of apply counts, with the mutex of the desk held.
	settle(d *desk, a answer, m moment)
}

// quiet is for actions that need no settle.
type quiet struct{}

func (quiet) settle(*desk, answer, moment) {}

// job is one request of a process for one name. Its desk's mutex guards its fields.
type job struct {
	action
	urgent bool          // others wait for it, or it keeps a lease
	until  time.Time     // when it is given up although it may not be done; zero means never
	after  int64         // the number of the desk's last request when it arrived: what it is refused by must be newer
	sent   bool          // a Swap was sent that has its changes
	unsure bool          // the outcome of such a Swap is unknown
	ended  bool          // its caller has gone
	done   chan struct{} // closed when err is set
	err    error
	heard  driver.Waited // what the store answered to it
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

// renewal renews a lease.
type renewal struct{ lease driver.Lease }

func (r renewal) apply(st *state, m moment, _ bool) (answer, error) {
	h := st.holder(r.lease.Owner)
	if h == nil || h.Token != r.lease.Token {
		return refused, notHeld(st.Name)
	}
	h.renew(m)
	return stored, nil
}

func (r renewal) settle(d *desk, a answer, m moment) {
	if h := d.holds[r.lease.Owner]; h != nil && a == stored {
		h.until = m.now.Add(h.ttl)
	}
}

// leaving ends an acquisition.
type leaving struct {
	lease driver.Lease
	quiet
}

func (l leaving) apply(st *state, _ moment, unsure bool) (answer, error) {
	h := st.holder(l.lease.Owner)
	switch {
	case h != nil && h.Token == l.lease.Token:
		st.remove(l.lease.Owner)
		return stored, nil
	case unsure:
		return refused, nil // an earlier attempt has ended it
	}
	return refused, notHeld(st.Name)
}

// resizing sets the limit of a name.
type resizing struct {
	limit int
	quiet
}

func (r resizing) apply(st *state, _ moment, _ bool) (answer, error) {
	if st.Limit == r.limit {
		return refused, nil
	}
	st.Limit = r.limit
	return stored, nil
}

// breaking ends acquisitions. It ends only those that it has found in the first place, so that a
// repeated attempt does not end a successor.
type breaking struct {
	quiet
	owner, reason string // no owner means all
	targets       []string
	closed        int64 // the beat of the minimum hold
	token         int64 // the result
}

func (b *breaking) apply(st *state, m moment, unsure bool) (answer, error) {
	if !unsure {
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
	if st.Closed != nil && st.Closed.Beat == b.closed {
		st.Closed = nil
	}
	st.Last = max(st.Last, b.token)
	b.token = st.issue(m)
	for _, owner := range b.targets {
		if st.holder(owner) != nil {
			st.remove(owner)
		}
		if !slices.ContainsFunc(st.Broken, func(o broken) bool { return o.Owner == owner }) {
			st.Broken = append(st.Broken, broken{owner, b.reason})
		}
	}
	if len(st.Broken) > maxBroken {
		st.Broken = st.Broken[len(st.Broken)-maxBroken:]
	}
	return stored, nil
}

// do gives a job to the desk of a name and waits until it is done or ctx ends.
func (e *Engine) do(ctx context.Context, name string, a action) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d := e.desk(name)
	return d.await(ctx, d.submit(&job{action: a, urgent: true}))
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
	j.ended = true
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
