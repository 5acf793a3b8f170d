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

// ongoing is one run of a job on this instance, from its beginning to finish.
type ongoing struct {
	job       *Job
	tick      time.Time
	scheduled time.Time // zero if no schedule asked for the run
	lock      *fencelock.Lock
	borrowed  bool // the lock is the caller's to release
	began     time.Time
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stops     []func() bool // stop what would cancel
	once      sync.Once     // for finish
}

// newRun begins a run under a lock that it releases itself.
func newRun(ctx context.Context, j *Job, tick, scheduled time.Time, lock *fencelock.Lock) (*ongoing, error) {
	r := &ongoing{job: j, tick: tick, scheduled: scheduled, lock: lock}
	return r.begin(ctx)
}

// begin begins the run, whose context ends with ctx or the lock. It is a
// *SkippedError if the job was paused while the run waited for the lock, and fencelock.ErrLost if the
// lock is lost by now; the lock is given back then.
func (r *ongoing) begin(ctx context.Context) (*ongoing, error) {
	j, lock, begun := r.job, r.lock, false
	r.began = time.Now()
	defer func() {
		if !begun { // paused or lost, or the logger panics
			r.end()
			_ = r.release()
		}
	}()
	r.ctx, r.cancel = context.WithCancelCause(context.WithValue(lock.Context(), tickKey{}, r.tick))
	r.stops = append(r.stops, context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) }))
	if err := r.write(r.ctx, beginLimit, StateRunning, nil); errors.Is(err, ErrSkipped) {
		return nil, err
	}
	if err := lock.Err(); err != nil { // lost meanwhile: perhaps somebody else runs the job by now
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

// end ends the context: whatever the work left behind ends before the next run begins.
func (r *ongoing) end() {
	for _, stop := range r.stops {
		stop()
	}
	r.cancel(context.Canceled)
}

// How long it is tried to write into the record. A run does not wait long for it, and goes
// on without; its outcome is worth more.
const (
	beginLimit = time.Second
	endLimit   = 10 * time.Second
	firstWrite = 100 * time.Millisecond // the pause before it is tried again
	lastWrite  = time.Second
	maxError   = 1 << 10 // how much is kept of the text of an error
)

// errLater says that a later run stands in the record.
var errLater = errors.New("a later run has begun")

// write writes the state of the run into the record of the job. It is a *SkippedError if the run
// must not begin.
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
		r.job.cfg.Logger.Info("the record does not tell of a run", "job", r.job.name, "token", r.lock.Token(), "state", string(state), "error", err)
	}
	return err
}

// note makes the run the last one of the record, unless a later run has begun: an instance that
// stood still overwrites nothing. A run whose beginning is not there yet does not begin if the job
// was paused meanwhile.
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

// told returns what is told of the run, by this host's clock, while it has not ended.
func (r *ongoing) told(state State, failure error) Run {
	run := Run{Tick: r.tick, State: state, Host: recordtext.Host(), PID: os.Getpid(), Token: r.lock.Token(), Started: r.began}
	if failure != nil {
		run.Error = recordtext.Cut(fmt.Sprint(failure), maxError) // Sprint outlives an Error that panics
	}
	return run
}

// tickKey is the context key of the tick that a run is for.
type tickKey struct{}

// TickFrom returns the time of the tick that ctx was made for, in UTC, and false if it
// was made for none. For a run by Job.Now it is the time of that call.
func TickFrom(ctx context.Context) (time.Time, bool) {
	tick, ok := ctx.Value(tickKey{}).(time.Time)
	return tick, ok
}

// do does the work of the run, and finishes it.
func (r *ongoing) do(fn func(ctx context.Context) error) error {
	err := errExited
	defer func() { _ = r.finish(err) }() // for a panic in fn; otherwise the second, and harmless
	err = fn(r.ctx)
	return r.finish(err)
}

// errExited stands for fn's error if it panics.
var errExited = errors.New("the run ended its goroutine")

// finish is a cronhook.Finish.
func (r *ongoing) finish(err error) error {
	r.once.Do(func() { err = r.finishOnce(err) })
	return err
}

func (r *ongoing) finishOnce(err error) error {
	took := time.Since(r.began)
	defer func() { _ = r.release() }() // for a panic of the logger; otherwise the second, and harmless
	r.end()
	lost := r.lock.Err()
	state, failure := StateOK, errors.Join(lost, err)
	if failure != nil {
		state = StateFailed
	}
	_ = r.write(context.WithoutCancel(r.ctx), endLimit, state, failure) // logged
	released := r.release()
	// A lock that was lost while the outcome was written stood when the work ended. One that the engine
	// does not know may have been gone before.
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
	r.job.report(told, err)
	return err
}
