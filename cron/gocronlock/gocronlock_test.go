package gocronlock_test

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
	"github.com/fencelock/fencelock/cron/gocronlock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	robfig "github.com/robfig/cron/v3"
)

// books counts outcomes.
type books struct {
	mu   sync.Mutex // guards seen
	seen map[string]int
}

func (b *books) note(o cron.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = map[string]int{}
	}
	switch reason, skipped := o.Skipped(); {
	case skipped:
		b.seen[string(reason)]++
	case o.Err != nil:
		b.seen["failed"]++
	default:
		b.seen["ran"]++
	}
}

func (b *books) want(t *testing.T, want map[string]int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := cmp.Diff(want, b.seen); d != "" {
		t.Errorf("outcomes (-want +got)\n%s", d)
	}
}

func job(store *memlock.Engine, b *books) cron.Job {
	return cron.Job{Locks: fencelock.New(store.Client(), nil), Name: "job", OnTick: b.note}
}

// start makes a scheduler with one job and starts it.
func start(t *testing.T, def gocron.JobDefinition, task gocron.Task, opts ...gocron.JobOption) {
	t.Helper()
	s, err := gocron.NewScheduler()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewJob(def, task, opts...); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { _ = s.Shutdown() })
}

// fiveMinutely is "*/5 * * * *".
func fiveMinutely(t *testing.T) cron.Schedule {
	t.Helper()
	schedule, err := robfig.ParseStandard("*/5 * * * *")
	if err != nil {
		t.Fatal(err)
	}
	return schedule
}

func TestTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memlock.New(nil), &books{}
		var runs atomic.Int64
		for range 3 {
			task, err := gocronlock.Task(job(store, b), fiveMinutely(t), func(ctx context.Context) error {
				if token, _ := fencelock.TokenFrom(ctx); token > 0 {
					runs.Add(1)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			start(t, gocron.CronJob("*/5 * * * *", false), gocron.NewTask(task))
		}
		time.Sleep(time.Hour + time.Minute)
		if runs.Load() != 12 {
			t.Errorf("%d runs", runs.Load())
		}
		b.want(t, map[string]int{"ran": 12, string(cron.Claimed): 24})
	})
}

// A fast job under three lockers: the tick stays claimed when the job is done.
func TestLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memlock.New(nil), &books{}
		var runs, refused atomic.Int64
		for range 3 {
			locker, err := gocronlock.New(job(store, b), fiveMinutely(t))
			if err != nil {
				t.Fatal(err)
			}
			start(t, gocron.CronJob("*/5 * * * *", false), gocron.NewTask(func() { runs.Add(1) }),
				gocron.WithDistributedJobLocker(locker),
				gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
					if errors.Is(err, cron.ErrSkipped) {
						refused.Add(1)
					}
				})))
		}
		time.Sleep(time.Hour + time.Minute)
		if runs.Load() != 12 || refused.Load() != 24 {
			t.Errorf("%d runs, %d refused", runs.Load(), refused.Load())
		}
		b.want(t, map[string]int{"ran": 12, string(cron.Claimed): 24})
	})
}

// Durations count from when the scheduler started: those share cron.Every.
func TestLockerOfADuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memlock.New(nil), &books{}
		for range 3 {
			time.Sleep(3 * time.Second)
			locker, err := gocronlock.New(job(store, b), cron.Every(30*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			start(t, gocron.DurationJob(30*time.Second), gocron.NewTask(func() {}), gocron.WithDistributedJobLocker(locker))
		}
		time.Sleep(10*time.Minute + time.Second)
		b.want(t, map[string]int{"ran": 20, string(cron.Claimed): 40})
	})
}

func TestLockOffSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, err := gocronlock.New(job(memlock.New(nil), &books{}), cron.Every(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Lock(t.Context(), "job"); !errors.Is(err, cron.ErrSkipped) {
			t.Errorf("got %v", err)
		}
	})
}

// A lock that was lost under the job is told afterwards.
func TestUnlockTellsOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memlock.New(nil), &books{}
		locker, err := gocronlock.New(job(store, b), cron.Every(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		lock, err := locker.Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		store.Lose("job")
		synctest.Wait()
		if err := lock.Unlock(t.Context()); !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("got %v", err)
		}
		b.want(t, map[string]int{"failed": 1})
	})
}

func TestTaskReturnsTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, broken := &books{}, errors.New("broken")
		task, err := gocronlock.Task(job(memlock.New(nil), b), cron.Every(time.Hour), func(context.Context) error { return broken })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := task(t.Context()); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		if err := task(t.Context()); err != nil {
			t.Errorf("off schedule: %v", err)
		}
	})
}

func TestJobsThatMakeNoSense(t *testing.T) {
	_, task := gocronlock.Task(cron.Job{}, cron.Every(time.Hour), nil)
	_, locker := gocronlock.New(cron.Job{}, cron.Every(time.Hour))
	for _, err := range []error{task, locker} {
		if !errors.Is(err, fencelock.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
}
