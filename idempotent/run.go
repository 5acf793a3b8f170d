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
	"github.com/fencelock/fencelock/internal/hostname"
	"github.com/fencelock/fencelock/internal/recordtext"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	leastRunning = 24 * time.Hour   // the minimum time for which a run without an outcome is stored
	leastStoring = 10 * time.Second // the minimum time for attempts to store an outcome, however short the TTL
	firstStore   = 10 * time.Millisecond
	lastStore    = time.Second
	maxError     = 4 << 10 // bytes of an error text that are stored
)

// Run is one run of a job, for code that does not fit into a function; see [Store.Begin]. The
// caller must end it with Complete, Fail or Abandon. The first of these calls counts; later ones do
// nothing and return nil. Run is safe for concurrent use.
type Run struct {
	store  *Store
	key    string
	lock   *fencelock.Lock
	ctx    context.Context
	own    record  // the record as far as this run knows
	flight *flight // shared by all callers of the key in this process
	ended  atomic.Bool

	unwatch func() bool // removes the callback on the end of the lock
}

// Lock returns the lock of the run, for guards and for its status. Do not release it; the run does.
func (r *Run) Lock() *fencelock.Lock { return r.lock }

// Context returns a context that is derived from that of [Store.Begin] and has the token of the
// run. It also ends with the lock of the run. If the lock is lost, its cause is fencelock.ErrLost.
func (r *Run) Context() context.Context { return r.ctx }

// begin writes into the record that the job runs, if the record has the given version. If the
// answer is lost and the record turns out to be this run's, it is written again, so that it is as
// durable as the engine can make it.
func (r *Run) begin(version string) error {
	err := r.swap(r.ctx, record{State: running, version: version})
	if errors.Is(err, driver.ErrUnavailable) {
		if now, _ := r.store.look(r.ctx, r.key); now.Owner == r.lock.Owner() {
			err = r.swap(r.ctx, now)
		}
	}
	return err
}

// swap stores a state of this run. rec.version is the version to replace.
func (r *Run) swap(ctx context.Context, rec record) error {
	rec.Owner, rec.Token, rec.Payload = r.lock.Owner(), r.lock.Token(), r.store.fingerprint
	rec.Host, rec.PID = hostname.Get(), os.Getpid()
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

// Complete stores the result of the job and releases the lock. A result longer than
// Config.MaxResult is not stored: later callers get [ErrNoResult].
//
// If a later run has started, Complete returns a *fencelock.LostError and stores nothing. If the
// lock was lost but no later run has started, it stores the result and returns nil. If the result
// cannot be stored, Complete retries while it keeps the lock, for the TTL of the lock or ten
// seconds, whichever is longer. Then it returns fencelock.ErrUnavailable, and another caller may
// run the job again.
func (r *Run) Complete(result []byte) error {
	if len(result) > r.store.cfg.MaxResult {
		return r.end(record{State: noResult})
	}
	return r.end(record{State: done, result: result})
}

// Fail ends a run that has failed. If Config.Remember returns true for err, Fail stores it as the
// outcome, with the errors of [Run.Complete]. Otherwise the next caller runs the job again; Fail
// then returns a *fencelock.LostError if the lock was lost before.
func (r *Run) Fail(err error) error {
	if remember := r.store.cfg.Remember; remember != nil && remember(err) {
		return r.end(record{State: failed, Error: recordtext.Cut(err.Error(), maxError)})
	}
	return r.end(record{State: running})
}

// Abandon ends a run without an outcome: the next caller runs the job again. After Complete or Fail
// it does nothing, so it can be deferred.
func (r *Run) Abandon() { _ = r.end(record{State: running}) }

// end ends the run: it stores the outcome if there is one, releases the lock, and wakes the waiting
// callers in this process.
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
		r.own = record{} // unknown
	}
	r.unwatch()
	_ = r.lock.Release() // if it fails, the lock expires by itself
	r.flight.land(r.own, nil)
	r.store.report(r.ctx, r.key, r.lock.Token(), ending(rec.State, err), err)
	return err
}

// ending returns the outcome of a run in one word, for tracers. err is the error of storing it.
func ending(state string, err error) string {
	switch {
	case errors.Is(err, fencelock.ErrLost):
		return "lost"
	case err != nil:
		return "error"
	case state == done || state == noResult:
		return "done"
	}
	return "failed"
}

// keep stores an outcome. It writes again after a lost answer, since too few replicas may have the
// outcome. It also retries a refused write: a server that is not promoted yet refuses every write.
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
			rec.version = now.version // "" if the record was lost while we hold the lock
		}
		if !pause.Wait(ctx) {
			return fmt.Errorf("%w: the outcome of %q could not be stored: %w", driver.ErrUnavailable, r.key, err)
		}
	}
}

// overtaken returns the error of a run after which another one has started.
func (r *Run) overtaken() error {
	return &fencelock.LostError{Name: r.lock.Name(), Token: r.lock.Token(), Deadline: r.lock.Deadline(), Reason: errOvertaken}
}

var errOvertaken = errors.New("a later run has started")
