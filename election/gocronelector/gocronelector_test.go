package gocronelector_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/election/gocronelector"
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
	in.candidate = election.New(fencelock.New(in.engine, &fencelock.Config{TTL: 10 * time.Second}), "jobs", nil)
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

// Jobs that ignore their context are reported; the name stays theirs.
func TestStuckJobs(t *testing.T) {
	store, leave, started := memlock.New(nil), make(chan struct{}), make(chan struct{})
	defer close(leave)
	locks := fencelock.New(store, &fencelock.Config{TTL: time.Second})
	elector := gocronelector.New(election.New(locks, "jobs", &election.Config{Shutdown: 200 * time.Millisecond}))
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
