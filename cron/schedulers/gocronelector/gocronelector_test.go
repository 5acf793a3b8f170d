package gocronelector_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/cron/schedulers/gocronelector"
	"github.com/fencelock/fencelock/cron/schedulers/gocronlock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
	"github.com/go-co-op/gocron/v2"
)

// instance is a process with a scheduler that runs a job once a minute.
type instance struct {
	engine    *memlock.Engine
	candidate *election.Candidate
	elector   *gocronelector.Elector
	scheduler gocron.Scheduler
}

func start(t *testing.T, store *memlock.Engine, job func(context.Context)) *instance {
	t.Helper()
	in := &instance{engine: store.Client()}
	in.candidate = election.New(fencelock.New(in.engine, nil).With(fencelock.Options{TTL: 10 * time.Second}), "jobs", nil)
	in.elector = gocronelector.New(in.candidate)
	var err error
	in.scheduler, err = gocron.NewScheduler(gocron.WithDistributedElector(in.elector))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.scheduler.Shutdown() })
	if _, err := in.scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(job)); err != nil {
		t.Fatal(err)
	}
	return in
}

// run runs the elector; stop ends it and returns its error.
func (in *instance) run() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- in.elector.Run(ctx, in.scheduler) }() // ends with cancel
	synctest.Wait()
	return func() error { cancel(); return <-done }
}

// tally counts the runs of each instance.
type tally struct {
	mu   sync.Mutex // guards runs
	runs [2]int
}

func (y *tally) job(i int) func(context.Context) {
	return func(context.Context) {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.runs[i]++
	}
}

func (y *tally) want(t *testing.T, a, b int) {
	t.Helper()
	synctest.Wait()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.runs != [2]int{a, b} {
		t.Errorf("runs %v, want %d and %d", y.runs, a, b)
	}
}

func TestOnlyTheLeaderRunsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var y tally
		a, b := start(t, store, y.job(0)), start(t, store, y.job(1))
		if err := a.elector.IsLeader(t.Context()); !errors.Is(err, gocronelector.ErrNotLeader) {
			t.Errorf("before the campaign: %v", err)
		}
		stopA, stopB := a.run(), b.run()
		time.Sleep(5*time.Minute + time.Second)
		y.want(t, 5, 0)
		if a.elector.IsLeader(t.Context()) != nil || b.elector.IsLeader(t.Context()) == nil {
			t.Error("the leader is not who should be")
		}
		if err := stopA(); !errors.Is(err, context.Canceled) {
			t.Errorf("a: %v", err)
		}
		time.Sleep(5*time.Minute + time.Second)
		y.want(t, 5, 5)
		if err := stopB(); !errors.Is(err, context.Canceled) {
			t.Errorf("b: %v", err)
		}
		time.Sleep(5 * time.Minute)
		y.want(t, 5, 5)
	})
}

// After a loss the jobs stop, and start again with the next term.
func TestLossAndReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var y tally
		a, b := start(t, store, y.job(0)), start(t, store, y.job(1))
		stopA, stopB := a.run(), b.run()
		time.Sleep(90 * time.Second)
		y.want(t, 1, 0)
		store.Lose("jobs")
		time.Sleep(2*time.Minute + time.Second)
		y.want(t, 1, 2)
		store.Lose("jobs")
		time.Sleep(2*time.Minute + time.Second)
		y.want(t, 3, 2)
		_, _ = stopB(), stopA()
	})
}

// A term does not end before its jobs have: their contexts tell them to.
func TestTheTermWaitsForItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var ended time.Time
		in := start(t, store, func(ctx context.Context) {
			<-ctx.Done()
			ended = time.Now()
		})
		stop := in.run()
		time.Sleep(90 * time.Second)
		cut := time.Now()
		if err := stop(); !errors.Is(err, context.Canceled) || ended.Before(cut) {
			t.Errorf("%v, ended %v", err, ended.Sub(cut))
		}
	})
}

// startWith is start with a job of the caller's.
func startWith(t *testing.T, store *memlock.Engine, def gocron.JobDefinition, task any, opts ...gocron.JobOption) *instance {
	t.Helper()
	in := start(t, store, func(context.Context) {})
	if _, err := in.scheduler.NewJob(def, gocron.NewTask(task), opts...); err != nil {
		t.Fatal(err)
	}
	return in
}

// An hour in which the leader goes shortly before, at or after each tick: jobs that
// claim their ticks run every one of them, once. One that is cut off between the claim and
// the work is told as such.
func TestEachTickOnceAroundHandOvers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * time.Second)
		store, begun := memlock.New(nil), time.Now()
		var mu sync.Mutex // guards ran, cutOff
		ran, cutOff := map[time.Time]int{}, 0
		told := func(_ cron.Run, err error) {
			mu.Lock()
			defer mu.Unlock()
			if !errors.Is(err, cron.ErrSkipped) && errors.Is(err, context.Canceled) {
				cutOff++
			}
		}
		work := func(ctx context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			tick, _ := cron.TickFrom(ctx)
			ran[tick]++
			return nil
		}
		var all []*instance
		for range 3 {
			job := cron.New(fencelock.New(store.Client(), nil), "invoices", &cron.Config{CatchUp: 1, Late: 30 * time.Second, OnTick: told})
			task, err := gocronlock.Task(job, cron.Every(time.Minute), work)
			if err != nil {
				t.Fatal(err)
			}
			in := startWith(t, store, gocron.CronJob("* * * * *", false), task, gocron.WithStartAt(gocron.WithStartImmediately()))
			all = append(all, in)
			stop := in.run()
			defer func() { _ = stop() }()
		}
		for i := range 60 {
			time.Sleep(time.Until(begun.Add(time.Duration(i)*time.Minute + 30*time.Second + time.Duration(i%7-3)*10*time.Millisecond)))
			for _, in := range all {
				if i%2 == 0 {
					in.candidate.Resign()
				} else if in.candidate.Term() != nil {
					store.Lose("jobs")
				}
			}
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for tick, n := range ran {
			if n != 1 {
				t.Errorf("the tick at %v ran %d times", tick, n)
			}
		}
		if len(ran) > 60 || len(ran)+cutOff < 60 || cutOff > 60/7 { // somebody else may run what was cut off
			t.Errorf("%d of 60 ticks ran, %d were cut off", len(ran), cutOff)
		}
	})
}

// A one-time job runs in one term, and one whose time has passed is no longer there:
// gocron would not come back from Start.
func TestOneTimeJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var now, later, missed int
		in := startWith(t, store, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), func() { now++ })
		for _, job := range []struct {
			at   time.Duration
			runs *int
		}{{time.Hour, &later}, {time.Minute, &missed}} {
			at := gocron.OneTimeJobStartDateTime(time.Now().Add(job.at))
			if _, err := in.scheduler.NewJob(gocron.OneTimeJob(at), gocron.NewTask(func() { *job.runs++ })); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		stop := in.run()
		for range 3 {
			time.Sleep(time.Hour)
			in.candidate.Resign()
		}
		time.Sleep(time.Minute)
		_ = stop()
		if now != 1 || later != 1 || missed != 0 {
			t.Errorf("ran %d, %d and %d times", now, later, missed)
		}
	})
}

// A scheduler that was shut down runs nothing: its instance leads no longer, once its
// jobs are done.
func TestShutdownEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var y tally
		var ended atomic.Bool
		a := startWith(t, store, gocron.DurationJob(time.Minute), func(ctx context.Context) {
			<-ctx.Done()
			ended.Store(true)
		})
		b := start(t, store, y.job(1))
		gone := make(chan error, 1)
		go func() { gone <- a.elector.Run(t.Context(), a.scheduler) }() // ends with the shutdown
		synctest.Wait()
		stopB := b.run()
		time.Sleep(90 * time.Second)
		begun := time.Now()
		go func() { _ = a.scheduler.Shutdown() }()
		err := <-gone
		if took := time.Since(begun); !errors.Is(err, gocronelector.ErrShutdown) || took > 2*time.Second || !ended.Load() {
			t.Errorf("%v after %v, and the job has ended: %v", err, took, ended.Load())
		}
		time.Sleep(90 * time.Second)
		y.want(t, 0, 1)
		_ = stopB()
		if err := a.elector.Run(t.Context(), a.scheduler); !errors.Is(err, gocronelector.ErrShutdown) {
			t.Errorf("once more: %v", err)
		}
	})
}

// A program that ends shuts its scheduler down and ends the context of Run, one right after the
// other: the term waits for the jobs all the same.
func TestShutdownWithTheContext(t *testing.T) {
	locks, leave, started := fencelock.New(memlock.New(nil), nil), make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(leave) })
	defer free()
	elector := gocronelector.New(election.New(locks, "jobs", nil))
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector), gocron.WithStopTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	once := sync.OnceFunc(func() { close(started) })
	if _, err := s.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(func() { once(); <-leave })); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- elector.Run(ctx, s) }() // ends with cancel
	<-started
	go func() { _ = s.Shutdown() }() // ends with the jobs
	for s.Jobs() != nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	select {
	case err := <-gone:
		t.Fatalf("the term has ended while a job runs: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	free()
	if err := <-gone; !errors.Is(err, context.Canceled) && !errors.Is(err, gocronelector.ErrShutdown) {
		t.Error(err)
	}
}

// Jobs that ignore their context are reported; the name stays theirs.
func TestStuckJobs(t *testing.T) {
	store, leave, started := memlock.New(nil), make(chan struct{}), make(chan struct{})
	defer close(leave)
	locks := fencelock.New(store, nil)
	elector := gocronelector.New(election.New(locks, "jobs", &election.Config{ShutdownTimeout: 200 * time.Millisecond}))
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector), gocron.WithStopTimeout(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	once := sync.OnceFunc(func() { close(started) })
	if _, err := s.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(func() { once(); <-leave })); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if err := elector.Run(ctx, s); !errors.Is(err, election.ErrStuck) {
		t.Errorf("got %v", err)
	}
	if leader, err := election.Current(t.Context(), locks, "jobs"); err != nil || leader.Term == 0 {
		t.Errorf("%+v, %v", leader, err)
	}
}
