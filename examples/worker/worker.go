package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock"
)

// A worker takes tasks from a queue and does each under a lock of its own.
type worker struct {
	queue    Queue
	locks    *fencelock.Locker
	careless bool // go on after a lost lock, to see the queue refuse the result
	log      *slog.Logger
	swept    time.Time // when this worker last tried to sweep
}

func newWorker(q Queue, locks *fencelock.Locker, log *slog.Logger) *worker {
	return &worker{queue: q, locks: locks, log: log, swept: time.Now()}
}

// run works until no task is left. A failure costs a pause: the task that it
// befell comes back.
func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		task, err := w.queue.Next(ctx)
		if err == nil {
			err = w.do(ctx, task)
		} else if errors.Is(err, errNone) {
			var taken []Task
			if taken, err = w.queue.Taken(ctx); err == nil && len(taken) == 0 {
				return nil
			}
			_ = sleep(ctx, 50*time.Millisecond) // others are at the last tasks, or died of them
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("failed", "task", task.ID, "error", err)
			_ = sleep(ctx, 50*time.Millisecond)
		}
		w.sweep(ctx)
	}
	return context.Cause(ctx)
}

// do does one task: lock, begin, work, finish.
func (w *worker) do(ctx context.Context, task Task) error {
	log := w.log.With("task", task.ID)
	err := w.locks.TryDo(ctx, task.lockName(), func(locked context.Context) error {
		token, _ := fencelock.TokenFrom(locked)
		log = log.With("token", token)
		// From here on the token speaks for us: every earlier holder of this lock,
		// who may be frozen or cut off and not know, can write no result any more.
		if err := w.queue.Begin(locked, task, token); err != nil {
			return err
		}
		log.Info("began")
		if w.careless {
			locked = ctx
		}
		result, err := perform(locked, task)
		if err != nil {
			return err
		}
		saving, cancel := w.lastWord(ctx)
		defer cancel()
		return w.queue.Finish(saving, task, token, result)
	})
	log.Info("ended", "error", err)
	switch {
	case errors.Is(err, fencelock.ErrHeld): // somebody else is at it
	case errors.Is(err, fencelock.ErrLost): // somebody else may be
	case errors.Is(err, errRefused): // it was done already, or we lost the lock and could not know
	case err != nil && ctx.Err() != nil: // we are told to end, and the lock is free: let another one begin
		saving, cancel := w.lastWord(ctx)
		defer cancel()
		return w.queue.PutBack(saving, task)
	default:
		return err
	}
	return nil
}

// lastWord returns a context for what is written to the queue even when ctx has ended.
func (w *worker) lastWord(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), w.locks.Options().TTL)
}

// perform is where the work goes. It stops when ctx ends.
func perform(ctx context.Context, task Task) (result string, err error) {
	return fmt.Sprintf("took %v", task.Length), sleep(ctx, task.Length)
}

// sweep puts tasks back that were given out and that nobody holds a lock for: their
// worker died or failed, and its lease is over. One worker does it for all, once a TTL:
// the minimum hold keeps the others from it even after the release.
func (w *worker) sweep(ctx context.Context) {
	ttl := w.locks.Options().TTL
	if time.Since(w.swept) < ttl {
		return
	}
	w.swept = time.Now()
	err := w.locks.With(fencelock.Options{MinHold: ttl}).TryDo(ctx, "sweep", w.putBack)
	if err != nil && !errors.Is(err, fencelock.ErrHeld) && ctx.Err() == nil {
		w.log.Warn("sweep failed", "error", err)
	}
}

// putBack looks at the locks of all tasks that were given out. The status of a lock is
// a look and no promise. A task put back by mistake costs somebody a try, and the lock
// and the token keep it right.
func (w *worker) putBack(ctx context.Context) error {
	taken, err := w.queue.Taken(ctx)
	for _, task := range taken {
		lock, err := w.locks.Status(ctx, task.lockName())
		if err == nil && len(lock.Holders) == 0 {
			w.log.Info("put back", "task", task.ID)
			err = w.queue.PutBack(ctx, task)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// sleep waits for d, or for the end of ctx, and returns why that has ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
