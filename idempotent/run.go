package idempotent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/recordtext"
	"github.com/fencelock/fencelock/internal/retry"
)

// Pauses between two looks of a caller who waits, and between two tries to store.
const (
	firstLook  = 10 * time.Millisecond
	lastLook   = time.Second
	firstStore = 10 * time.Millisecond
	lastStore  = time.Second
	leastEnd   = 10 * time.Second // how long it is tried, however short the lease
)

// run is one run of a job. Its goroutine renews the lease; no other uses state or sent then.
type run struct {
	store *Store
	key   string
	state state     // as it stands in the record, as far as we know
	sent  time.Time // before the lease that stands was asked for; zero before the job begins
	left  string    // the state it is left in if it gets no outcome, by a panic
	ended bool      // its outcome was stored, or it was lost

	ctx     context.Context // for the job
	cancel  context.CancelCauseFunc
	stop    context.CancelFunc // ends the renewals
	stopped chan struct{}      // closed when they have ended
	lost    error              // why the record is not ours any more; valid after stopped
}

// begin waits until the job is over, and returns its state, or until it is this caller's
// to run. Options.Wait ends the wait, and no request: what it would cut off may have begun
// a run that nobody makes.
func (s *Store) begin(ctx context.Context, key string) (*run, state, error) {
	waiting := ctx
	if s.opts.Wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, s.opts.Wait)
		defer cancel()
	}
	var busy *InProgressError // what was heard last
	for pause := retry.NewBackoff(firstLook, lastLook); ; {
		r, st, now, err := s.try(ctx, key)
		switch {
		case err != nil && !errors.Is(err, ErrMismatch) && busy != nil && ctx.Err() != nil:
			return nil, state{}, gaveUp(ctx, busy)
		case err != nil:
			return nil, state{}, err
		case now == nil:
			return r, st, nil
		case s.opts.NoWait:
			return nil, state{}, now
		}
		if busy = now; !pause.Wait(waiting) {
			return nil, state{}, gaveUp(waiting, busy)
		}
	}
}

// gaveUp is the error of a wait that ctx has ended.
func gaveUp(ctx context.Context, busy *InProgressError) error {
	return fmt.Errorf("%w: gave up waiting: %w", busy, ctx.Err())
}

// try returns a run of this caller's, the state of a job that is over, or who runs it.
func (s *Store) try(ctx context.Context, key string) (*run, state, *InProgressError, error) {
	for {
		st, err := s.look(ctx, key)
		if err != nil {
			return nil, state{}, nil, err
		}
		if st.version != "" && st.Fingerprint != s.fingerprint {
			return nil, state{}, nil, fmt.Errorf("%w: %q", ErrMismatch, key)
		}
		switch st.State {
		case done, noResult, failed:
			return nil, st, nil, nil
		}
		r, busy, err := s.claim(ctx, key, st)
		if r != nil {
			r.start(ctx)
		}
		if !errors.Is(err, driver.ErrConflict) && !errors.Is(err, fencelock.ErrLost) { // then somebody was faster
			return r, state{}, busy, err
		}
	}
}

// claim begins a run, unless another one goes on (busy) or the record has changed, which
// is ErrConflict. A run that was to end later than a lease from now was written before the clock
// was set back: its end is brought forward, or a run that died would keep others out until the
// clock is there again. One that lives renews from there.
func (s *Store) claim(ctx context.Context, key string, old state) (r *run, busy *InProgressError, err error) {
	sent := time.Now()
	earliest, latest, err := s.records.Clock(ctx)
	if err != nil {
		return nil, nil, err
	}
	if old.State == running && earliest.UnixMicro() < old.Until {
		if end := latest.UnixMicro() + old.Lease; old.Lease > 0 && end < old.Until { // the clock was set back meanwhile
			old.Until = end
			_ = (&run{store: s, key: key, state: old}).swap(ctx, old) // or whoever looks next does it
		}
		return nil, &InProgressError{Key: key, Host: old.Host, PID: old.PID, Until: time.UnixMicro(old.Until)}, nil
	}
	r = &run{store: s, key: key, left: open, state: state{
		State: running, Owner: rand.Text(), Token: max(old.Token+1, latest.UnixMicro()),
		Until: latest.Add(s.cfg.Lease).UnixMicro(), Lease: s.cfg.Lease.Microseconds(),
		Fingerprint: s.fingerprint, Host: recordtext.Host(), PID: os.Getpid(), version: old.version,
	}}
	err = r.swap(ctx, r.state)
	if errors.Is(err, driver.ErrUnavailable) && r.find(ctx) == nil {
		err = r.swap(ctx, r.state) // ours; stored once more it is as safe as the engine makes it
	}
	if errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrInvalid) {
		return nil, nil, err // nothing of ours is stored, or can be
	}
	if err == nil && time.Since(sent) > s.cfg.Lease/2 { // it took long; the job begins with a lease to spend
		sent = time.Now()
		err = r.prolong(ctx)
	}
	if err != nil {
		go r.withdraw(context.WithoutCancel(ctx)) // ends when the claim is undone, or after a lease
		return nil, nil, err
	}
	r.sent = sent
	return r, nil, nil
}

// withdraw undoes the claim of a run that does not begin, since its caller's context has ended
// or the records did not answer: the claim would keep others out for a lease, with no
// run. It replaces the version that the claim was to replace, so that a claim that
// reaches the records later is refused.
func (r *run) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(r.store.cfg.Lease, leastEnd))
	defer cancel()
	st := state{State: open, Owner: r.state.Owner, Token: r.state.Token, Fingerprint: r.state.Fingerprint}
	for pause := retry.NewBackoff(firstStore, lastStore); ; {
		if r.swap(ctx, st) == nil {
			return
		}
		switch found, err := r.store.look(ctx, r.key); {
		case err != nil:
		case found.Owner == st.Owner && found.State == open:
			return // it was stored, and the answer was lost
		case found.Owner == st.Owner:
			r.state.version = found.version
		case found.version != r.state.version:
			return // the record is another run's, or has expired
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// swap stores a state in place of the one we know.
func (r *run) swap(ctx context.Context, st state) error {
	keep := r.store.cfg.Retention
	if st.State == running {
		keep += max(r.store.cfg.Lease, time.Duration(st.Lease)*time.Microsecond)
	}
	version, err := r.store.records.Swap(ctx, keyPrefix+r.key, st.encode(), r.state.version, keep)
	if err == nil {
		r.state, r.state.version = st, version
	}
	return err
}

// find reads the record after a swap whose outcome is not known, and what there is of
// ours becomes what we know. It is an ErrLost if the record is not ours. One that was
// forgotten is ours while the lease lasts, if nobody has begun another run: it is stored anew.
func (r *run) find(ctx context.Context) error {
	st, err := r.store.look(ctx, r.key)
	switch {
	case err != nil:
		return err
	case st.version == "" && time.Since(r.sent) < r.store.hold():
		r.state.version = ""
		return nil
	case st.version == "" || st.Owner != r.state.Owner:
		return &fencelock.LostError{Name: r.key, Token: r.state.Token, Deadline: time.UnixMicro(r.state.Until), Reason: errTakenOver}
	}
	r.state = st
	return nil
}

var errTakenOver = errors.New("the run was taken over when its lease had ended")

// start begins to renew a run.
func (r *run) start(ctx context.Context) {
	token := r.state.Token
	fenced := fence.NewContext(ctx, fence.Fence{Name: keyPrefix + r.key, Token: token, Floor: token})
	r.ctx, r.cancel = context.WithCancelCause(context.WithValue(fenced, tokenKey{}, token))
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop, r.stopped = stop, make(chan struct{})
	go func() { // ends with stop, or when the run is lost
		defer close(r.stopped)
		r.renew(renewing)
	}()
}

// hold is how long a lease counts for its holder: a margin less than for others, whose clocks
// may be fast, and our timers are late.
func (s *Store) hold() time.Duration { return s.cfg.Lease - s.cfg.Lease/50 - 10*time.Millisecond }

// renew keeps the lease until ctx ends or the run is lost. The job's context ends before
// others may take over.
func (r *run) renew(ctx context.Context) {
	lease, hold := r.store.cfg.Lease, r.store.hold()
	deadline := time.AfterFunc(time.Until(r.sent.Add(hold)), func() { r.cancel(fencelock.ErrLost) })
	defer deadline.Stop()
	pause := retry.NewBackoff(lease/60, lease/12)
	for next := lease / 3; retry.Sleep(ctx, next); {
		sent := time.Now()
		attempt, cancel := context.WithTimeout(ctx, max(lease/6, minLease/2))
		err := r.prolong(attempt)
		cancel()
		switch {
		case err == nil:
			r.sent = sent
			pause.Reset()
			next = lease / 3
			if left := time.Until(sent.Add(hold)); r.ctx.Err() == nil && left > 0 {
				deadline.Reset(left)
			}
		case errors.Is(err, fencelock.ErrLost):
			r.lost = err
			r.cancel(err)
			return
		default:
			next = pause.Next()
		}
	}
}

// prolong renews the lease once.
func (r *run) prolong(ctx context.Context) error {
	_, latest, err := r.store.records.Clock(ctx)
	if err != nil {
		return err
	}
	st := r.state
	st.Until = latest.Add(r.store.cfg.Lease).UnixMicro()
	err = r.swap(ctx, st)
	if errors.Is(err, driver.ErrConflict) {
		// Ours, if an earlier renewal was carried out whose answer was lost. The next
		// one renews from there.
		if err := r.find(ctx); err != nil {
			return err
		}
	}
	return err
}

// complete stores the result of the run, if it is to be kept and not too long.
func (r *run) complete(result []byte, keep bool) error {
	st := state{State: done, result: result}
	if !keep || len(result) > r.store.cfg.MaxResult {
		st = state{State: noResult}
	}
	return r.end(st)
}

// fail stores a failure, or that the job may be run again.
func (r *run) fail(err error) error {
	if remember := r.store.cfg.Remember; remember != nil && remember(err) {
		return r.end(state{State: failed, Error: recordtext.Cut(err.Error(), maxError)})
	}
	return r.end(state{State: open})
}

// maxError is how much is kept of the text of an error.
const maxError = 4 << 10

// abandon ends a run that has no outcome. If its job was not done the next caller can run
// it at once.
func (r *run) abandon() {
	if !r.ended {
		_ = r.end(state{State: r.left}) // it ends with its lease otherwise
	}
}

// end stores the outcome of the run. It tries for the length of a lease, also when that
// has ended: the record is ours until somebody takes it. An outcome whose answer was lost is
// stored once more: too few replicas may have it. One that is refused is tried again as well:
// a server that is not promoted yet refuses every write.
func (r *run) end(st state) error {
	r.ended = true
	r.stop()
	<-r.stopped
	defer r.cancel(nil)
	if r.lost != nil {
		return r.lost
	}
	st.Owner, st.Token, st.Fingerprint = r.state.Owner, r.state.Token, r.state.Fingerprint
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), max(r.store.cfg.Lease, leastEnd))
	defer cancel()
	for pause := retry.NewBackoff(firstStore, lastStore); ; {
		err := r.swap(ctx, st)
		if err == nil || errors.Is(err, driver.ErrInvalid) {
			return err
		}
		if found := r.find(ctx); errors.Is(found, fencelock.ErrLost) {
			return found
		}
		if !pause.Wait(ctx) {
			return fmt.Errorf("%w: the outcome of %q could not be stored: %w", driver.ErrUnavailable, r.key, err)
		}
	}
}
