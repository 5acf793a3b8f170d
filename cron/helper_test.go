package cron_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

const ttl = 10 * time.Second

// instance is one process that runs a job; its clock is behind by behind.
type instance struct {
	engine *memlock.Engine
	behind time.Duration
	locks  *fencelock.Locker
	cfg    cron.Config
	job    *cron.Job
	ledger *ledger
}

// ledger counts the outcomes on all instances.
type ledger struct {
	mu      sync.Mutex // guards all below
	runs    map[time.Time]int
	tokens  []int64
	skipped map[cron.Reason]int
	failed  []error
}

func newLedger() *ledger {
	return &ledger{runs: map[time.Time]int{}, skipped: map[cron.Reason]int{}}
}

func (l *ledger) note(_ cron.Run, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if skipped, ok := errors.AsType[*cron.SkippedError](err); ok {
		l.skipped[skipped.Reason]++
	} else if err != nil {
		l.failed = append(l.failed, err)
	}
}

// work counts a run of the given length.
func (l *ledger) work(tick time.Time, length time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		l.mu.Lock()
		l.runs[tick]++
		token, _ := fencelock.TokenFrom(ctx)
		l.tokens = append(l.tokens, token)
		l.mu.Unlock()
		return idle(ctx, length)
	}
}

// ran is how many ticks were run.
func (l *ledger) ran() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs)
}

// idle waits for d, or for the end of ctx.
func idle(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fleet makes n instances of a job whose clocks are apart from one another.
func fleet(n int, apart time.Duration, cfg cron.Config) (all []*instance, books *ledger) {
	store, books := memlock.New(nil), newLedger()
	for i := range n {
		in := books.instance(store.Client(), nil, cfg)
		in.behind = time.Duration(i) * apart
		all = append(all, in)
	}
	return all, books
}

// instance makes one more instance, which sees the engine as through does, if that is
// not nil.
func (l *ledger) instance(engine *memlock.Engine, through func(driver.Engine) driver.Engine, cfg cron.Config) *instance {
	in := &instance{engine: engine, ledger: l}
	var seen driver.Engine = engine
	if through != nil {
		seen = through(engine)
	}
	in.locks = fencelock.New(seen, nil).With(fencelock.Options{TTL: ttl})
	in.cfg = cfg
	in.tell(l.note)
	return in
}

// tell makes the job of in anew, which tells f how ticks end.
func (in *instance) tell(f func(cron.Run, error)) {
	in.cfg.OnTick = f
	in.job = cron.New(in.locks, "job", &in.cfg)
}

// claimsOnly hides the records of an engine, which then is as Redlock.
func claimsOnly(e driver.Engine) driver.Engine {
	return struct {
		driver.Engine
		driver.Lister
		driver.Breaker
	}{e, e.(driver.Lister), e.(driver.Breaker)}
}

// schedule calls Tick for every tick when the instance's clock says so, as a
// scheduler does, until ctx ends.
func (in *instance) schedule(ctx context.Context, ticks []time.Time, length time.Duration) {
	var runs sync.WaitGroup
	defer runs.Wait()
	for _, tick := range ticks {
		if idle(ctx, time.Until(tick.Add(in.behind))) != nil {
			return
		}
		runs.Go(func() { _ = in.job.Tick(ctx, tick, in.ledger.work(tick, length)) }) // ends with the run
	}
}

// series is n ticks, gap apart, beginning a gap from now.
func series(n int, gap time.Duration) (ticks []time.Time) {
	for i := range n {
		ticks = append(ticks, time.Now().Add(time.Duration(i+1)*gap).Round(0))
	}
	return ticks
}

// wantRuns fails the test unless each tick was run so often.
func (l *ledger) wantRuns(t *testing.T, ticks []time.Time, each int) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, tick := range ticks {
		if l.runs[tick] != each {
			t.Errorf("tick %d was run %d times, want %d", i, l.runs[tick], each)
		}
	}
}

// alone is one instance on a store of its own.
func alone(cfg cron.Config) (*instance, *ledger) {
	all, books := fleet(1, 0, cfg)
	return all[0], books
}

func want(t *testing.T, what string, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%s: got %v, want %v", what, err, target)
		}
	}
}

// wantSkipped fails the test unless err is a skipped tick for that reason.
func wantSkipped(t *testing.T, err error, why cron.Reason) {
	t.Helper()
	skipped, ok := errors.AsType[*cron.SkippedError](err)
	if !ok || skipped.Reason != why || !errors.Is(err, cron.ErrSkipped) {
		t.Errorf("got %v, want a tick skipped: %s", err, why)
	}
}

func nothing(context.Context) error { return nil }
