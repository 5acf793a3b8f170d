package cron_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
)

// faulty makes engines whose records have a clock of its own, and loses answers.
type faulty struct {
	ahead  atomic.Int64 // how far the clock is ahead, in nanoseconds
	lose   atomic.Int64 // so many of the next swaps are carried out, and their answers lost
	refuse atomic.Int64 // so many of the next swaps are refused
}

// through is for ledger.instance.
func (f *faulty) through(e driver.Engine) driver.Engine {
	return faultyEngine{e, e.(driver.Lister), faultyRecords{e.(driver.RecordKeeper).Records(), f}}
}

type faultyEngine struct {
	driver.Engine
	driver.Lister
	records driver.Records
}

func (e faultyEngine) Records() driver.Records { return e.records }

type faultyRecords struct {
	driver.Records
	*faulty
}

func (r faultyRecords) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if r.refuse.Add(-1) >= 0 {
		return "", fmt.Errorf("%w: refused", driver.ErrUnavailable)
	}
	next, err := r.Records.Swap(ctx, key, value, version, ttl)
	if err == nil && r.lose.Add(-1) >= 0 {
		return "", fmt.Errorf("%w: the answer is lost", driver.ErrUnavailable)
	}
	return next, err
}

func (r faultyRecords) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	earliest, latest, err = r.Records.Clock(ctx)
	ahead := time.Duration(r.ahead.Load())
	return earliest.Add(ahead), latest.Add(ahead), err
}

// deploy runs the schedulers of some instances for d.
func deploy(ctx context.Context, d time.Duration, s cron.Schedule, length time.Duration, all ...*instance) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var schedulers sync.WaitGroup
	for _, in := range all {
		schedulers.Go(func() { // ends with ctx
			_ = in.job.Run(ctx, s, func(ctx context.Context) error {
				tick, _ := cron.TickFrom(ctx)
				return in.ledger.work(tick, length)(ctx)
			})
		})
	}
	schedulers.Wait()
}

// wantEach fails the test unless so many ticks were run, each of them once.
func (l *ledger) wantEach(t *testing.T, count int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.runs) != count {
		t.Errorf("%d ticks were run, want %d", len(l.runs), count)
	}
	for tick, runs := range l.runs {
		if runs != 1 {
			t.Errorf("%v was run %d times", tick, runs)
		}
	}
}

// status is the Status of the job, as in sees it.
func (in *instance) status(t *testing.T) cron.Status {
	t.Helper()
	s, err := in.job.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
