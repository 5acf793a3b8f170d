//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/cronhook"
)

// tickRun is the run of a tick that this process has claimed, as the record of the job describes
// it. The zero value is a run without a tick.
type tickRun struct {
	lock      *fencelock.Lock
	finishRun cronhook.Finish // nil until the run has begun
}

// taker returns a function that claims a tick, acquires the lock with take, and records the start
// of the run. The tick is the one nearest to the time of this host, in UTC. Hosts whose runs start
// at about the same time claim the same tick; two runs of one crontab that are at least a tick
// apart claim two.
func (t *tickRun) taker(job *cron.Job, every time.Duration, take func(context.Context, string) (*fencelock.Lock, error)) func(context.Context) (*fencelock.Lock, error) {
	return func(ctx context.Context) (*fencelock.Lock, error) {
		tick := time.Now().Round(every)
		if err := asBusy(cronhook.Claim(ctx, job, tick)); err != nil {
			return nil, err
		}
		lock, err := take(ctx, job.Name())
		if err != nil {
			return nil, err
		}
		if t.finishRun, err = cronhook.StartUnder(ctx, job, tick, lock); err != nil { // the job has been paused, or the lock is lost
			lock.Release() // nothing was started; if this fails, the lease expires
			return nil, asBusy(err)
		}
		t.lock = lock
		return lock, nil
	}
}

// asBusy makes a claimed tick or a paused job look like a busy lock, to which -q and -E apply. A
// tick that has passed before the server answered is an unreachable server, since no host runs it.
func asBusy(err error) error {
	skipped, ok := errors.AsType[*cron.SkippedError](err)
	switch {
	case !ok:
		return err
	case skipped.Reason == cron.ReasonTooLate:
		return fmt.Errorf("%w: the server did not answer within half a tick: %w", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrHeld, err)
}

// finish records how the command ended; nil means that it succeeded. It is called before the lock
// is released: a run without a recorded outcome counts as lost.
func (t *tickRun) finish(err error) {
	if t.finishRun != nil {
		_ = withinLease(t.lock, func() error { return t.finishRun(err) })
	}
}

// tickLog shows people what package cron logs, each message once: while the server is unreachable
// or the disk is full, a tick is tried again and again for half a tick.
type tickLog struct {
	app   *app
	mu    sync.Mutex // guards shown
	shown map[string]bool
}

// Enabled reports whether a level is for people.
func (*tickLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle shows a message and its error.
func (l *tickLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown[r.Message] {
		return nil
	}
	if l.shown == nil {
		l.shown = map[string]bool{}
	}
	l.shown[r.Message] = true
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			text += ": " + a.Value.String()
		}
		return true
	})
	l.app.say("%s", text)
	return nil
}

// WithAttrs returns l.
func (l *tickLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns l.
func (l *tickLog) WithGroup(string) slog.Handler { return l }
