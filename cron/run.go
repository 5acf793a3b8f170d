package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hostname"
	"github.com/fencelock/fencelock/internal/recordtext"
	"github.com/fencelock/fencelock/internal/retry"
)

// ongoing is one run of a job on this instance, from begin to finish. Its methods are called by one
// goroutine.
type ongoing struct {
	job       *Job
	tick      time.Time
	scheduled time.Time // zero for a run by Job.Now
	claim     *claim    // of the tick; nil for a run by Job.Now
	lock      *fencelock.Lock
	borrowed  bool // the caller releases the lock
	began     time.Time
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stops     []func() bool // stop the callbacks that would cancel ctx
	once      sync.Once     // for finish

	attempted bool         // begin has recorded an attempt; the work starts later
	started   bool         // the work has started
	written   func() error // waits for the record of the start, and returns its error; nil if it is known to be written
}

// begin begins the run. Its context ends with ctx or with the lock. With StateRunning the work
// starts when begin has returned; with StateStarting it starts when start is called. If the run
// has a tick, it begins only if the claim, or the attempt, is known to be recorded.
//
// begin returns a *SkippedError if another instance has claimed the tick or if the job was paused
// while the run waited for the lock, and fencelock.ErrLost if the lock has been lost. It then
// releases the lock.
func (r *ongoing) begin(ctx context.Context, first State) (*ongoing, error) {
	j, lock, begun := r.job, r.lock, false
	r.began = time.Now()
	defer func() {
		if !begun { // refused or lost, or the logger panicked
			r.end()
			_ = r.release()
		}
	}()
	r.ctx, r.cancel = context.WithCancelCause(context.WithValue(lock.Context(), tickKey{}, r.tick))
	r.stops = append(r.stops, context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) }))
	err := r.enroll(first)
	if lost := lock.Err(); lost != nil && !errors.Is(err, ErrSkipped) { // another instance may already run the job
		err = fmt.Errorf("run %q at %s: %w", j.name, stamp(r.tick), lost)
	} else if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("run %q at %s: %w: %w", j.name, stamp(r.tick), context.Cause(ctx), err)
	}
	if err != nil {
		if r.claim != nil && (r.claim.locked || first == StateRunning && !errors.Is(err, ErrSkipped)) {
			r.withdraw(err)
		}
		return nil, err
	}
	begun, r.attempted, r.started = true, first == StateStarting, first == StateRunning
	return r, nil
}

// enroll records the beginning of the run.
func (r *ongoing) enroll(first State) error {
	if r.claim == nil { // no tick can be run twice: the run is more important than its record
		if err := r.write(r.ctx, beginLimit, first, nil); errors.Is(err, ErrSkipped) {
			return err
		}
		return nil
	}
	b, err := r.job.book()
	claim := func() error {
		if errors.Is(err, fencelock.ErrUnsupported) {
			return r.claim.lock(r.ctx)
		}
		return r.claim.failed(b.change(r.ctx, func(rec *record, now time.Time) error { return r.note(r.ctx, rec, now, first, nil) }))
	}
	return r.claim.pastRival(r.ctx, func() error { return r.job.retryUnavailable(r.ctx, r.claim.until, claim) })
}

// withdraw gives back the tick of a run whose work has not started. The record is written in any
// case, so that a request of this run that is still on its way is refused.
func (r *ongoing) withdraw(why error) {
	ctx := context.WithoutCancel(r.ctx)
	r.claim.unlock(ctx)
	_ = r.write(ctx, endLimit, StateUnstarted, why) // failures are logged
}

// start tells that the work of an attempt has started. The claim is recorded meanwhile, for as long
// as the work or the lock lasts: a work that has started cannot be undone.
func (r *ongoing) start() {
	r.started = true
	ctx, cancel := context.WithCancel(r.lock.Context())
	done := make(chan error, 1)
	go func() { // ends with the lock, or at written
		done <- r.write(ctx, driver.MaxDuration, StateRunning, nil)
	}()
	r.written = sync.OnceValue(func() error {
		defer cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(beginLimit):
			cancel()
			return <-done
		}
	})
}

// release releases the lock, unless the caller does.
func (r *ongoing) release() error {
	if r.borrowed {
		return nil
	}
	return r.lock.Release()
}

// end cancels the context, so that goroutines which the work left behind end before the next run.
func (r *ongoing) end() {
	for _, stop := range r.stops {
		stop()
	}
	r.cancel(context.Canceled)
}

// How long a run tries to write into the record. Its start does not wait long and the run continues
// without a record; its outcome is more important.
const (
	beginLimit = time.Second
	endLimit   = 10 * time.Second
	firstWrite = 100 * time.Millisecond // the first pause between two attempts
	lastWrite  = time.Second
	maxError   = 1 << 10 // how many bytes of an error text are stored
)

// errLater means that the record already has a later run.
var errLater = errors.New("the record already has a later run")

// write writes the state of the run into the record of the job. It returns a *SkippedError if the
// run must not begin.
func (r *ongoing) write(ctx context.Context, limit time.Duration, state State, failure error) error {
	b, err := r.job.book()
	if errors.Is(err, fencelock.ErrUnsupported) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := retry.NewBackoff(firstWrite, lastWrite); ; {
		err = b.change(ctx, func(rec *record, now time.Time) error { return r.note(ctx, rec, now, state, failure) })
		if !errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, fencelock.ErrConfig) || !pause.Wait(ctx) {
			break
		}
	}
	if err != nil && !errors.Is(err, ErrSkipped) {
		r.job.cfg.Logger.Info("the run is not in the record of the job", "job", r.job.name, "token", r.lock.Token(), "state", string(state), "error", err)
	}
	return err
}

// note writes the run into the record: its tick, and the run as the last one, unless a later run
// has begun. An instance that was paused must not overwrite that. If the run must not begin, note
// returns a *SkippedError.
func (r *ongoing) note(ctx context.Context, rec *record, now time.Time, state State, failure error) error {
	last := r.asReported(state, failure)
	last.Tick, last.Started = r.scheduled, now.Add(-time.Since(r.began))
	there := rec.Last != nil && rec.Last.Token == last.Token
	if state == StateRunning && rec.Paused != nil && !there && !r.attempted {
		return &SkippedError{Job: r.job.name, Tick: r.tick, Reason: ReasonPaused, Pause: rec.Paused}
	}
	changed, err := r.mark(ctx, rec, now, state)
	if err != nil {
		return err
	}
	if rec.Last != nil && rec.Last.Token > last.Token {
		if changed || state == StateUnstarted { // a late request of this run must be refused
			return nil
		}
		return errLater
	}
	if state == StateOK || state == StateFailed || state == StateUnstarted {
		last.Ended = now
	}
	rec.Last = &last
	return nil
}

// mark writes into the record whether the tick is claimed, and reports whether it has written
// anything. A run that has not started only attempts it. A *SkippedError means that the run must
// not begin.
func (r *ongoing) mark(ctx context.Context, rec *record, now time.Time, state State) (changed bool, err error) {
	c := r.claim
	if c == nil {
		return false, nil
	}
	by, free := rec.taker(c.tick)
	mine := by == c.id
	one := taken{tick: c.tick, by: c.id}
	switch state {
	case StateStarting:
		if rec.fresh && !c.tick.After(rec.Floor) { // the caller came in time, and has waited for the lock
			rec.Floor = c.tick.Add(-1)
		}
		if err := cmp.Or(c.refused(rec), c.rival(ctx, rec, r.lock.Token())); err != nil {
			return false, err
		}
		one = taken{tick: c.tick, attempt: r.lock.Token()}
	case StateUnstarted:
		if !mine { // nothing was claimed, or another run has the tick
			return false, nil
		}
		one = taken{tick: c.tick, attempt: r.lock.Token()}
	default:
		if begins := !r.attempted && !r.started; begins {
			if err := cmp.Or(c.refused(rec), c.rival(ctx, rec, r.lock.Token())); err != nil {
				return false, err
			}
		}
		if !mine && !free { // a run whose lock was lost while it started
			return false, nil
		}
	}
	if ahead := c.tick.Sub(now); ahead > c.job.cfg.Skew+early {
		c.job.cfg.Logger.Warn("the clocks of this host and of the engine differ by more than Skew", "job", c.job.name, "tick", c.tick, "engine", now)
	}
	rec.take(one, c.next, now)
	return true, nil
}

// asReported returns the run as it is reported, with times by the clock of this host.
func (r *ongoing) asReported(state State, failure error) Run {
	run := Run{Tick: r.tick, State: state, Host: hostname.Get(), PID: os.Getpid(), Token: r.lock.Token(), Started: r.began}
	if failure != nil {
		run.Error = recordtext.Cut(fmt.Sprint(failure), maxError) // Sprint survives an Error method that panics
	}
	return run
}

// tickKey is the context key of the tick of a run.
type tickKey struct{}

// TickFrom returns the tick that ctx belongs to, in UTC. For a run by Job.Now it is the time of
// that call. ok is false if ctx does not come from a run.
func TickFrom(ctx context.Context) (tick time.Time, ok bool) {
	tick, ok = ctx.Value(tickKey{}).(time.Time)
	return tick, ok
}

// do runs the work and finishes the run.
func (r *ongoing) do(fn func(ctx context.Context) error) error {
	err := errExited
	defer func() { _ = r.finish(err) }() // for a panic in fn; otherwise a second call, which does nothing
	err = fn(r.ctx)
	return r.finish(err)
}

// errExited is the error of a run whose fn panics or calls runtime.Goexit.
var errExited = errors.New("the run ended its goroutine")

// finish ends the run; see [Due.Start].
func (r *ongoing) finish(err error) error {
	r.once.Do(func() { err = r.finishOnce(err) })
	return err
}

func (r *ongoing) finishOnce(err error) error {
	took := time.Since(r.began)
	defer func() { _ = r.release() }() // for a panic of the logger; otherwise a second call, which does nothing
	r.end()
	if !r.started {
		r.withdraw(err)
		r.job.report(r.ctx, Run{Tick: r.tick}, err)
		return err
	}
	lost := r.lock.Err()
	state, failure := StateOK, errors.Join(lost, err)
	if failure != nil {
		state = StateFailed
	}
	unwritten := r.record(state, failure)
	released := r.release()
	// If the lock was lost while the outcome was written, it was still held when the work ended.
	// But if the engine does not know the lock, it may have been gone before that.
	if lost == nil && errors.Is(released, fencelock.ErrNotHeld) && !errors.Is(released, fencelock.ErrLost) {
		lost = &fencelock.LostError{Name: r.job.name, Token: r.lock.Token(), Deadline: r.lock.Deadline(), Reason: released}
	}
	switch {
	case lost != nil:
		err = errors.Join(lost, err)
	case released != nil:
		r.job.cfg.Logger.Debug("release failed", "job", r.job.name, "tick", r.tick, "error", released)
	}
	if unwritten != nil {
		err = errors.Join(unwritten, err)
	}
	if err != nil {
		state = StateFailed
	}
	ended := r.asReported(state, err)
	ended.Ended = r.began.Add(took)
	r.job.report(r.ctx, ended, err)
	return err
}

// record writes the outcome. It returns ErrUnrecorded if the record may not even say that the work
// started, so that another instance may run the tick again. Other failures are only logged.
func (r *ongoing) record(state State, failure error) error {
	var unwritten error
	if r.written != nil {
		unwritten = r.written()
	}
	err := r.write(context.WithoutCancel(r.ctx), endLimit, state, failure)
	if unwritten == nil || err == nil || errors.Is(err, errLater) || errors.Is(err, fencelock.ErrUnsupported) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnrecorded, err)
}
