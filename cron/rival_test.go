package cron_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

var errNoProgram = errors.New("no such file")

// Under a shared lock, a caller that waits finds another one about to start the tick. It waits until
// that one has started the tick or will not.
func TestAttemptWaitsForItsRival(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*instance, *cron.Attempt)
		wait time.Duration
		want cron.Reason // "" if the caller that waits gets the tick
	}{
		"the rival fails": {end: func(_ *instance, a *cron.Attempt) {
			_ = a.Finish(errNoProgram)
			_ = a.Lock().Release()
		}},
		"the rival keeps its lock": {end: func(_ *instance, a *cron.Attempt) { _ = a.Finish(errNoProgram) }},
		"the rival dies":           {end: func(in *instance, _ *cron.Attempt) { in.engine.Kill() }},
		"the rival starts":         {end: func(_ *instance, a *cron.Attempt) { a.Started() }, want: cron.ReasonClaimed},
		"the rival hangs":          {end: func(*instance, *cron.Attempt) {}, wait: time.Minute, want: cron.ReasonStarting},
	} {
		for _, limit := range []int{0, 2} {
			synctest.Test(t, func(t *testing.T) {
				all, _ := fleet(2, 0, cron.Config{})
				for _, in := range all {
					in.locks = in.locks.With(fencelock.Options{Shared: true, Limit: limit})
				}
				rival := all[0].attempt(t, epoch)
				ends := make(chan error)
				go func() { // ends when the rival has started the tick, failed, or the wait is over
					_, err := all[1].job.Begin(t.Context(), epoch, cron.Take{Acquire: all[1].locks.Acquire, Shared: true, Wait: c.wait})
					ends <- err
				}()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				select {
				case err := <-ends:
					t.Errorf("%s: the wait was over before that: %v", name, err)
					return
				default:
				}
				c.end(all[0], rival)
				if err := <-ends; c.want == "" {
					want(t, name, err, nil)
				} else {
					wantSkipped(t, err, c.want)
				}
				_ = rival.Finish(nil)
			})
		}
	}
}

// A caller whose lock is lost while it waits for its rival has lost it; it was not refused.
func TestLossWhileARivalIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := fleet(2, 0, cron.Config{})
		for _, in := range all {
			in.locks = in.locks.With(fencelock.Options{Shared: true})
		}
		rival := all[0].attempt(t, epoch)
		time.AfterFunc(10*time.Second, func() { all[1].engine.Lose("job") })
		_, err := all[1].job.Begin(t.Context(), epoch, cron.Take{Acquire: all[1].locks.Acquire, Shared: true})
		want(t, "Begin", err, fencelock.ErrLost)
		_ = rival.Finish(nil)
	})
}

// With OverlapAllow, the runs of a program share the lock with a command that is about to start the
// tick. The program waits for it and does not run the tick at the same time.
func TestTickWaitsForASharedAttempt(t *testing.T) {
	for _, failure := range []error{nil, errNoProgram} {
		synctest.Test(t, func(t *testing.T) {
			all, books := fleet(2, 0, cron.Config{Overlap: cron.OverlapAllow})
			all[0].locks = all[0].locks.With(fencelock.Options{Shared: true})
			a := all[0].attempt(t, epoch)
			ends := make(chan error)
			go func() { ends <- all[1].job.Tick(t.Context(), epoch, books.work(epoch, 0)) }() // ends with the tick
			time.Sleep(10 * time.Second)
			if len(books.runs) > 0 {
				t.Error("the tick runs while a command is about to start it")
			}
			if failure == nil {
				a.Started()
			} else {
				_ = a.Finish(failure)
			}
			if err := <-ends; failure == nil {
				wantSkipped(t, err, cron.ReasonClaimed)
			} else {
				want(t, "Tick", err, nil)
			}
			_ = a.Finish(nil)
			_ = a.Lock().Release()
		})
	}
}

// late is an engine whose swaps may be carried out late, after their caller has given up.
type late struct {
	driver.Records
	before func()       // called before the next swap, once
	now    bool         // the next swap is late
	swap   func() error // carries it out
	giveUp func()       // called then
}

func (l *late) through(e driver.Engine) driver.Engine {
	l.Records = e.(driver.RecordKeeper).Records()
	return faultyEngine{e, e.(driver.Lister), l}
}

func (l *late) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if f := l.before; f != nil {
		l.before = nil
		f()
	}
	swap := func(ctx context.Context) (string, error) { return l.Records.Swap(ctx, key, value, version, ttl) }
	if !l.now {
		return swap(ctx)
	}
	l.now = false
	l.swap = func() error {
		_, err := swap(context.WithoutCancel(ctx))
		return err
	}
	l.giveUp()
	return "", fmt.Errorf("%w: no answer", driver.ErrUnavailable)
}

// A run that gives its tick back changes the record even if that has a later run. Its claim, which is
// still on its way, is refused then.
func TestLateClaimBesideALaterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine late
		store, books := memlock.New(nil), newLedger()
		cfg := cron.Config{Overlap: cron.OverlapAllow}
		one, two := books.instance(store.Client(), engine.through, cfg), books.instance(store.Client(), nil, cfg)
		time.Sleep(time.Second)
		other := epoch.Add(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		engine.giveUp = cancel
		engine.before = func() {
			want(t, "the later run", two.job.Tick(t.Context(), other, books.work(other, 0)), nil)
			engine.before = func() { engine.now = true }
		}
		want(t, "Tick", one.job.Tick(ctx, epoch, books.work(epoch, 0)), context.Canceled)
		want(t, "the late swap", engine.swap(), driver.ErrConflict)
		want(t, "the next caller", two.job.Tick(t.Context(), epoch, books.work(epoch, 0)), nil)
	})
}
