package cron

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/recordtext"
	"github.com/fencelock/fencelock/internal/retry"
)

// ongoing is one run of a job on this instance, from begin to finish.
type ongoing struct {
	job       *Job
	tick      time.Time
	scheduled time.Time // zero for a run by Job.Now
	lock      *fencelock.Lock
	borrowed  bool // the caller releases the lock
	began     time.Time
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stops     []func() bool // stop the callbacks that would cancel ctx
	once      sync.Once     // for finish
}

// newRun begins a run and takes over its lock.
func newRun(ctx context.Context, j *Job, tick, scheduled time.Time, lock *fencelock.Lock) (*ongoing, error) {
	r := &ongoing{job: j, tick: tick, scheduled: scheduled, lock: lock}
	return r.begin(ctx)
}

// begin begins the run. Its context ends with ctx or with the lock. It returns a *SkippedError if
// the job was paused while the run waited for the lock, and fencelock.ErrLost if the lock has been
// lost. It then releases the lock.
func (r *ongoing) begin(ctx context.Context) (*ongoing, error) {
	j, lock, begun := r.job, r.lock, false
	r.began = time.Now()
	defer func() {
		if !begun { // paused or lost, or the logger panicked
			r.end()
			_ = r.release()
		}
	}()
	r.ctx, r.cancel = context.WithCancelCause(context.WithValue(lock.Context(), tickKey{}, r.tick))
	r.stops = append(r.stops, context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) }))
	if err := r.write(r.ctx, beginLimit, StateRunning, nil); errors.Is(err, ErrSkipped) {
		return nil, err
	}
	if err := lock.Err(); err != nil { // another instance may already run the job
		return nil, fmt.Errorf("run %q at %s: %w", j.name, stamp(r.tick), err)
	}
	begun = true
	return r, nil
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
		err = b.change(ctx, func(rec *record, now time.Time) error { return r.note(rec, now, state, failure) })
		if !errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, fencelock.ErrConfig) || !pause.Wait(ctx) {
			break
		}
	}
	if err != nil && !errors.Is(err, ErrSkipped) {
		r.job.cfg.Logger.Info("the run is not in the record of the job", "job", r.job.name, "token", r.lock.Token(), "state", string(state), "error", err)
	}
	return err
}

// note makes this run the last one in the record, unless a later run has begun: an instance that
// was paused must not overwrite it. If the job was paused before the start of the run was recorded,
// note returns a *SkippedError.
func (r *ongoing) note(rec *record, now time.Time, state State, failure error) error {
	last := r.told(state, failure)
	last.Tick, last.Started = r.scheduled, now.Add(-time.Since(r.began))
	switch there := rec.Last != nil && rec.Last.Token == last.Token; {
	case state == StateRunning && rec.Paused != nil && !there:
		return &SkippedError{Job: r.job.name, Tick: r.tick, Reason: ReasonPaused, Pause: rec.Paused}
	case rec.Last != nil && rec.Last.Token > last.Token:
		return errLater
	}
	if state != StateRunning {
		last.Ended = now
	}
	rec.Last = &last
	return nil
}

// told returns the run as it is reported, with times by the clock of this host.
func (r *ongoing) told(state State, failure error) Run {
	run := Run{Tick: r.tick, State: state, Host: recordtext.Host(), PID: os.Getpid(), Token: r.lock.Token(), Started: r.began}
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

// finish implements cronhook.Finish.
func (r *ongoing) finish(err error) error {
	r.once.Do(func() { err = r.finishOnce(err) })
	return err
}

func (r *ongoing) finishOnce(err error) error {
	took := time.Since(r.began)
	defer func() { _ = r.release() }() // for a panic of the logger; otherwise a second call, which does nothing
	r.end()
	lost := r.lock.Err()
	state, failure := StateOK, errors.Join(lost, err)
	if failure != nil {
		state = StateFailed
	}
	_ = r.write(context.WithoutCancel(r.ctx), endLimit, state, failure) // failures are logged
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
	if err != nil {
		state = StateFailed
	}
	told := r.told(state, err)
	told.Ended = r.began.Add(took)
	r.job.report(r.ctx, told, err)
	return err
}
