package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock"
)

// A worker takes tasks from a queue and processes each one under the lock of that task.
type worker struct {
	queue    Queue
	locks    *fencelock.Locker
	careless bool // keep working after a lost lock, to see the queue refuse the result
	log      *slog.Logger
	swept    time.Time // when this worker last attempted to sweep
}

func newWorker(q Queue, locks *fencelock.Locker, log *slog.Logger) *worker {
	return &worker{queue: q, locks: locks, log: log, swept: time.Now()}
}

// run works until no task is left. After an error it pauses and continues; the sweep puts the
// failed task back.
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
			_ = sleep(ctx, 50*time.Millisecond) // other workers have the last tasks, and may fail
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("failed", "task", task.ID, "error", err)
			_ = sleep(ctx, 50*time.Millisecond)
		}
		w.sweep(ctx)
	}
	return context.Cause(ctx)
}

// do processes one task: lock, begin, work, finish.
func (w *worker) do(ctx context.Context, task Task) error {
	log := w.log.With("task", task.ID)
	err := w.locks.TryDo(ctx, task.lockName(), func(locked context.Context) error {
		token, _ := fencelock.TokenFrom(locked)
		log = log.With("token", token)
		// After Begin the queue refuses results of earlier holders of this lock, which may be frozen
		// or cut off from the server and unaware of the loss.
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
		saving, cancel := w.saveContext(ctx)
		defer cancel()
		return w.queue.Finish(saving, task, token, result)
	})
	log.Info("ended", "error", err)
	switch {
	case errors.Is(err, fencelock.ErrHeld): // another worker has the task
	case errors.Is(err, fencelock.ErrLost): // another worker may have it by now
	case errors.Is(err, errRefused): // it is done, or we lost the lock without learning of it
	case err != nil && ctx.Err() != nil: // we are shutting down: let another worker begin it at once
		saving, cancel := w.saveContext(ctx)
		defer cancel()
		return w.queue.PutBack(saving, task)
	default:
		return err
	}
	return nil
}

// saveContext returns a context for writes to the queue that must happen even if ctx has ended.
func (w *worker) saveContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), w.locks.Options().TTL)
}

// perform does the work, which is only a pause in this example. It stops when ctx ends.
func perform(ctx context.Context, task Task) (result string, err error) {
	return fmt.Sprintf("took %v", task.Length), sleep(ctx, task.Length)
}

// sweep puts back tasks that were taken and whose lock has no holder: their worker has failed, or
// it died and its lease has expired. One worker sweeps per TTL: the minimum hold keeps the lock
// closed to the others after its release.
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

// putBack reads the status of the locks of all taken tasks. A status may be out of date when it
// arrives. If a task is put back by mistake, another worker tries to acquire its lock in vain; the
// lock and the token still prevent a second result.
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

// sleep waits for d and returns nil, or returns the cause if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
