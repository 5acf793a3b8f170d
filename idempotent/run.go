package idempotent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/recordtext"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	leastRunning = 24 * time.Hour   // how long a run without an outcome is remembered at least
	leastStoring = 10 * time.Second // how long it is tried to store an outcome, however short the TTL
	firstStore   = 10 * time.Millisecond
	lastStore    = time.Second
	maxError     = 4 << 10 // bytes that are kept of the text of an error
)

// Run is one run of a job, for programs that cannot make a function of it; see
// [Store.Begin]. One of Complete, Fail and Abandon must end it; of several calls the first
// counts, and the others do nothing and return nil. It is safe for concurrent use.
type Run struct {
	store  *Store
	key    string
	lock   *fencelock.Lock
	ctx    context.Context
	own    record  // as it stands, as far as we know
	flight *flight // of those of this process who ask for the key
	ended  atomic.Bool

	unwatch func() bool // keeps the flight from landing when the lock ends
}

// Lock returns the lock that the run holds, for guards and for status. The run releases it.
func (r *Run) Lock() *fencelock.Lock { return r.lock }

// Context returns the context of [Store.Begin] with the token of the run, which ends with
// the run's lock too: with a cause that is fencelock.ErrLost if it is lost.
func (r *Run) Context() context.Context { return r.ctx }

// begin writes that the job runs into the record that has a version. If the answer is lost
// and the record is ours it is stored once more: then it is as safe as the engine makes it.
func (r *Run) begin(version string) error {
	err := r.swap(r.ctx, record{State: running, version: version})
	if errors.Is(err, driver.ErrUnavailable) {
		if now, _ := r.store.look(r.ctx, r.key); now.Owner == r.lock.Owner() {
			err = r.swap(r.ctx, now)
		}
	}
	return err
}

// swap stores a state of ours in place of the version that it has.
func (r *Run) swap(ctx context.Context, rec record) error {
	rec.Owner, rec.Token, rec.Payload = r.lock.Owner(), r.lock.Token(), r.store.fingerprint
	rec.Host, rec.PID = recordtext.Host(), os.Getpid()
	keep := r.store.cfg.Retention
	if rec.State == running {
		keep = max(keep, leastRunning)
	}
	version, err := r.store.records.Swap(ctx, keyPrefix+r.key, rec.encode(), rec.version, keep)
	if err == nil {
		r.own, r.own.version = rec, version
	}
	return err
}

// Complete stores the result of the job and releases the lock. A result that is longer than
// Config.MaxResult is not kept: later callers get [ErrNoResult].
//
// If a later run has begun, the error is a *fencelock.LostError and nothing is stored. A lock
// that was lost alone is no error: the job was done once. If the outcome could not be stored
// for as long as the lock's TTL, and ten seconds at least, the error is
// fencelock.ErrUnavailable: another caller may run the job again. The lock is kept meanwhile.
func (r *Run) Complete(result []byte) error {
	if len(result) > r.store.cfg.MaxResult {
		return r.end(record{State: noResult})
	}
	return r.end(record{State: done, result: result})
}

// Fail ends a run that has failed. If Config.Remember says that err is an outcome it is
// stored as [Run.Complete] does, and with the errors of that. Otherwise the next caller runs the job again,
// and the error is a *fencelock.LostError if the lock was lost before.
func (r *Run) Fail(err error) error {
	if remember := r.store.cfg.Remember; remember != nil && remember(err) {
		return r.end(record{State: failed, Error: recordtext.Cut(err.Error(), maxError)})
	}
	return r.end(record{State: running})
}

// Abandon ends a run without an outcome: the next caller runs the job again. It does nothing
// after Complete or Fail, and so can be deferred.
func (r *Run) Abandon() { _ = r.end(record{State: running}) }

// end ends the run: it stores an outcome, if there is one, gives the lock back, and tells
// those of this process who wait.
func (r *Run) end(rec record) error {
	if r.ended.Swap(true) {
		return nil
	}
	err := r.lock.Err()
	if rec.State != running {
		rec.Ended = time.Now().UTC()
		err = r.keep(rec)
	}
	if err != nil {
		r.own = record{} // whatever stands
	}
	r.unwatch()
	_ = r.lock.Release() // if it fails, the lock ends by itself
	r.flight.land(r.own, nil)
	return err
}

// keep stores an outcome. One whose answer was lost is stored once more, since too few replicas may have
// it. One that is refused is tried again as well: a server that is not promoted yet refuses
// every write.
func (r *Run) keep(rec record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), max(r.store.locks.Options().TTL, leastStoring))
	defer cancel()
	rec.version = r.own.version
	for pause := retry.NewBackoff(firstStore, lastStore); ; {
		err := r.swap(ctx, rec)
		if err == nil || errors.Is(err, driver.ErrInvalid) {
			return err
		}
		if now, unread := r.store.look(ctx, r.key); unread == nil {
			if now.Owner != r.lock.Owner() && (now.version != "" || r.lock.Err() != nil) {
				return r.overtaken()
			}
			rec.version = now.version // "" if it was forgotten, under our lock
		}
		if !pause.Wait(ctx) {
			return fmt.Errorf("%w: the outcome of %q could not be stored: %w", driver.ErrUnavailable, r.key, err)
		}
	}
}

// overtaken is the error of a run that is not the last one.
func (r *Run) overtaken() error {
	return &fencelock.LostError{Name: r.lock.Name(), Token: r.lock.Token(), Deadline: r.lock.Deadline(), Reason: errOvertaken}
}

var errOvertaken = errors.New("a later run has begun")
