package gocronlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/cron/schedulers/gocronlock"
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

func (b *books) note(_ cron.Run, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = map[string]int{}
	}
	switch skipped, ok := errors.AsType[*cron.SkippedError](err); {
	case ok:
		b.seen[string(skipped.Reason)]++
	case err != nil:
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

func job(store *memlock.Engine, b *books) *cron.Job {
	return jobWith(store, cron.Config{OnTick: b.note})
}

func jobWith(store *memlock.Engine, cfg cron.Config) *cron.Job {
	return cron.New(fencelock.New(store.Client(), nil), "job", &cfg)
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
		b.want(t, map[string]int{"ran": 12, string(cron.ReasonClaimed): 24})
	})
}

// options are those of a job that claims its ticks.
func options(t *testing.T, job *cron.Job, schedule cron.Schedule) []gocron.JobOption {
	t.Helper()
	opts, err := gocronlock.Options(job, schedule)
	if err != nil {
		t.Fatal(err)
	}
	return opts
}

// A fast job under three lockers: the tick stays claimed when the job is done.
func TestOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memlock.New(nil), &books{}
		var runs, refused atomic.Int64
		for range 3 {
			opts := append(options(t, job(store, b), fiveMinutely(t)),
				gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
					if errors.Is(err, cron.ErrSkipped) {
						refused.Add(1)
					}
				})))
			start(t, gocron.CronJob("*/5 * * * *", false), gocron.NewTask(func() { runs.Add(1) }), opts...)
		}
		time.Sleep(time.Hour + time.Minute)
		if runs.Load() != 12 || refused.Load() != 24 {
			t.Errorf("%d runs, %d refused", runs.Load(), refused.Load())
		}
		b.want(t, map[string]int{"ran": 12, string(cron.ReasonClaimed): 24})
	})
}

// Durations count from when the scheduler started: those share cron.Every.
func TestOptionsOfADuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := memlock.New(nil), &books{}
		for range 3 {
			time.Sleep(3 * time.Second)
			opts := append(options(t, job(store, b), cron.Every(30*time.Second)), gocron.WithStartAt(gocronlock.Multiple(30*time.Second)))
			start(t, gocron.DurationJob(30*time.Second), gocron.NewTask(func() {}), opts...)
		}
		time.Sleep(10*time.Minute + time.Second)
		b.want(t, map[string]int{"ran": 20, string(cron.ReasonClaimed): 40})
	})
}

// A DurationJob that is not started on its multiples is too late for every tick: it
// says so each time, and what to do.
func TestDurationOffItsMultiples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(7 * time.Minute)
		every := cron.Every(10 * time.Minute)
		var refused, ran atomic.Int64
		check := func(_ uuid.UUID, _ string, err error) {
			if errors.Is(err, fencelock.ErrInvalid) && strings.Contains(err.Error(), "gocronlock.Multiple(d)") {
				refused.Add(1)
			}
		}
		b := &books{}
		task, err := gocronlock.Task(job(memlock.New(nil), b), every, func(context.Context) error { ran.Add(1); return nil })
		if err != nil {
			t.Fatal(err)
		}
		start(t, gocron.DurationJob(10*time.Minute), gocron.NewTask(task), gocron.WithEventListeners(gocron.AfterJobRunsWithError(check)))
		opts := append(options(t, job(memlock.New(nil), b), every), gocron.WithEventListeners(gocron.AfterLockError(check)))
		start(t, gocron.DurationJob(10*time.Minute), gocron.NewTask(func() { ran.Add(1) }), opts...)
		time.Sleep(time.Hour + time.Minute)
		b.want(t, map[string]int{"failed": 12, string(cron.ReasonTooLate): 12})
		if refused.Load() != 12 || ran.Load() != 0 {
			t.Errorf("refused %d times, ran %d times", refused.Load(), ran.Load())
		}
		start(t, gocron.DurationJob(10*time.Minute), gocron.NewTask(task), gocron.WithStartAt(gocronlock.Multiple(10*time.Minute)))
		time.Sleep(time.Hour)
		if ran.Load() != 6 {
			t.Errorf("ran %d times in an hour", ran.Load())
		}
	})
}

// A call for which no tick is due uses up a limited run of gocron's. Config.OnTick is told.
func TestLimitedRunBegunOffItsTick(t *testing.T) {
	for name, c := range map[string]struct {
		late    time.Duration
		catchUp int
		skipped bool // no error: a call at that time is no mistake
	}{
		"no tick of its schedule is near": {},
		"within Late of an earlier one":   {late: 4 * time.Minute, skipped: true},
		"nothing to make up for":          {catchUp: 1, skipped: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(3 * time.Minute)
				var told []error // by one call after the other
				j := jobWith(memlock.New(nil), cron.Config{Late: c.late, CatchUp: c.catchUp, OnTick: func(_ cron.Run, err error) { told = append(told, err) }})
				task, err := gocronlock.Task(j, fiveMinutely(t), func(context.Context) error { t.Error("it ran"); return nil })
				if err != nil {
					t.Fatal(err)
				}
				limited := []gocron.JobOption{gocron.WithLimitedRuns(1), gocron.WithStartAt(gocron.WithStartImmediately())}
				start(t, gocron.CronJob("*/5 * * * *", false), gocron.NewTask(task), limited...)
				time.Sleep(11 * time.Minute)
				synctest.Wait() // or the call could still be under way
				if len(told) != 1 || told[0] == nil || errors.Is(told[0], cron.ErrSkipped) != c.skipped {
					t.Errorf("OnTick was told %v", told)
				}
			})
		})
	}
}

// Ticks that came due while no instance ran are made up for when the scheduler starts.
func TestCatchUpAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(3 * time.Minute)
		store, b := memlock.New(nil), &books{}
		for range 2 {
			j := jobWith(store, cron.Config{CatchUp: 1, Late: 4 * time.Minute, OnTick: b.note})
			task, err := gocronlock.Task(j, fiveMinutely(t), func(context.Context) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			start(t, gocron.CronJob("*/5 * * * *", false), gocron.NewTask(task), gocron.WithStartAt(gocron.WithStartImmediately()))
		}
		time.Sleep(time.Second)
		b.want(t, map[string]int{"ran": 1, string(cron.ReasonClaimed): 1})
		time.Sleep(5 * time.Minute)
		b.want(t, map[string]int{"ran": 2, string(cron.ReasonClaimed): 2})
	})
}

// A lock that was lost under the job, and a job that failed, are told afterwards.
func TestOptionsTellHowAJobEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, broken := memlock.New(nil), errors.New("broken")
		var ended []error // by jobs that run one after the other
		j := jobWith(store, cron.Config{OnTick: func(_ cron.Run, err error) { ended = append(ended, err) }})
		ends := make(chan error)
		start(t, gocron.DurationJob(time.Hour), gocron.NewTask(func() error { return <-ends }),
			append(options(t, j, cron.Every(time.Hour)), gocron.WithStartAt(gocronlock.Multiple(time.Hour)))...)
		end := func(err error) error {
			ends <- err
			synctest.Wait()
			return ended[len(ended)-1]
		}
		if got := end(broken); !errors.Is(got, broken) {
			t.Errorf("a job that failed: %v", got)
		}
		if got := end(nil); got != nil {
			t.Errorf("a job that ran: %v", got)
		}
		time.Sleep(61 * time.Minute) // the next one is at work
		store.Lose("job")
		synctest.Wait()
		if got := end(nil); !errors.Is(got, fencelock.ErrLost) {
			t.Errorf("a job that lost its lock: %v", got)
		}
	})
}

// A listener in place of ours hides how the job ended, which is not reported as well.
func TestAnotherListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := make(chan error, 1)
		j := jobWith(memlock.New(nil), cron.Config{OnTick: func(_ cron.Run, err error) { outcomes <- err }})
		opts := append(options(t, j, cron.Every(time.Hour)), gocron.WithStartAt(gocronlock.Multiple(time.Hour)),
			gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(uuid.UUID, string, error) {})))
		start(t, gocron.DurationJob(time.Hour), gocron.NewTask(func() error { return errors.New("broken") }), opts...)
		if err := <-outcomes; !errors.Is(err, gocronlock.ErrUnknown) {
			t.Errorf("got %v", err)
		}
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
	_, task := gocronlock.Task(cron.New(nil, "", nil), cron.Every(time.Hour), nil)
	_, options := gocronlock.Options(cron.New(nil, "", nil), cron.Every(time.Hour))
	locks := fencelock.New(memlock.New(nil), nil)
	_, catchUp := gocronlock.Options(cron.New(locks, "job", &cron.Config{CatchUp: 1}), cron.Every(time.Hour))
	_, allow := gocronlock.Options(cron.New(locks, "job", &cron.Config{Overlap: cron.OverlapAllow}), cron.Every(time.Hour))
	for _, err := range []error{task, options, catchUp, allow} {
		if !errors.Is(err, fencelock.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
}
