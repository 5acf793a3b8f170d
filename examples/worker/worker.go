package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock"
)

// A worker takes tasks from a queue and does each under a lock of its own.
type worker struct {
	queue    Queue
	locks    *fencelock.Locker
	ttl      time.Duration
	careless bool
	log      *slog.Logger
	swept    time.Time // when this worker last tried to sweep
}

func newWorker(s store, cfg settings, out io.Writer) *worker {
	return &worker{
		queue:    s.queue,
		locks:    s.locks(&fencelock.Config{TTL: cfg.ttl, Note: "worker"}),
		ttl:      cfg.ttl,
		careless: cfg.careless,
		log:      logger(out),
		swept:    time.Now(),
	}
}

// run works until no task is left. A failure costs a pause: the task that it
// befell comes back.
func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		task, err := w.queue.Next(ctx)
		switch {
		case errors.Is(err, errNone):
			if taken, err := w.queue.Taken(ctx); err == nil && len(taken) == 0 {
				return nil
			}
			sleep(ctx, 50*time.Millisecond)
		case err == nil:
			err = w.do(ctx, task)
		}
		if err != nil && !errors.Is(err, errNone) && ctx.Err() == nil {
			w.log.Warn("failed", "task", task.ID, "error", err)
			sleep(ctx, 50*time.Millisecond)
		}
		w.sweep(ctx)
	}
	return context.Cause(ctx)
}

// do does one task: lock, begin, work, finish.
func (w *worker) do(ctx context.Context, task Task) error {
	lock, err := w.locks.TryAcquire(ctx, task.lockName())
	if errors.Is(err, fencelock.ErrHeld) {
		w.log.Info("busy", "task", task.ID)
		return nil // somebody is at it
	}
	if err != nil {
		return err
	}
	defer lock.Release() // or it ends by itself, after the TTL

	// From here on the token speaks for us: every earlier holder of this lock,
	// who may be frozen or cut off and not know, can write no result any more.
	tries, err := w.queue.Begin(ctx, task, lock.Token())
	if errors.Is(err, errRefused) {
		w.log.Info("late", "task", task.ID, "token", lock.Token())
		return nil // it was done between Next and the lock
	}
	if err != nil {
		return err
	}
	w.log.Info("began", "task", task.ID, "token", lock.Token(), "try", tries)

	working := lock.ContextWith(ctx) // ends with ctx, or when the lock is lost, before others get it
	if w.careless {
		working = ctx
	}
	result, err := perform(working, task)
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.ttl) // what is done is written, also at the end
	defer cancel()
	switch {
	case errors.Is(err, fencelock.ErrLost):
		w.log.Warn("lost", "task", task.ID, "token", lock.Token())
		return nil // it is somebody else's now
	case err != nil && ctx.Err() != nil:
		w.log.Info("stopped", "task", task.ID, "token", lock.Token())
		_ = lock.Release() // first, or whoever is given the task next finds it locked
		return w.queue.PutBack(saving, task)
	case err != nil:
		return err
	}
	err = w.queue.Finish(saving, task, lock.Token(), result)
	if errors.Is(err, errRefused) {
		w.log.Warn("refused", "task", task.ID, "token", lock.Token())
		return nil // we lost the lock and could not know
	}
	if err == nil {
		w.log.Info("done", "task", task.ID, "token", lock.Token())
	}
	return err
}

// perform is where the work goes. It stops when ctx ends.
func perform(ctx context.Context, task Task) (result string, err error) {
	if sleep(ctx, task.Length); ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return fmt.Sprintf("took %v", task.Length), nil
}

// sweep puts tasks back that were given out and that nobody holds a lock for:
// their worker died or failed, and its lease is over. One worker does it for all,
// once a TTL: the minimum hold keeps the others from it even after the release.
//
// The list of locks is a look and no promise. A task put back by mistake costs
// somebody a try, and the lock and the token keep it right.
func (w *worker) sweep(ctx context.Context) {
	if time.Since(w.swept) < w.ttl {
		return
	}
	w.swept = time.Now()
	lock, err := w.locks.With(fencelock.Options{MinHold: w.ttl}).TryAcquire(ctx, "sweep")
	if err != nil {
		return // another one does it
	}
	defer lock.Release()
	if err := w.putBack(lock.Context()); err != nil {
		w.log.Warn("sweep failed", "error", cmp.Or(lock.Err(), err))
	}
}

func (w *worker) putBack(ctx context.Context) error {
	taken, err := w.queue.Taken(ctx)
	if err != nil {
		return err
	}
	locks, err := w.locks.List(ctx, lockPrefix)
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for _, l := range locks {
		held[l.Name] = len(l.Holders) > 0
	}
	for _, task := range taken {
		if held[task.lockName()] {
			continue
		}
		if err := w.queue.PutBack(ctx, task); err != nil {
			return err
		}
		w.log.Info("put back", "task", task.ID)
	}
	return nil
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
