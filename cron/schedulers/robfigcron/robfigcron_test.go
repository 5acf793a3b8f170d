package robfigcron_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/cron/schedulers/robfigcron"
	"github.com/fencelock/fencelock/memlock"
	robfig "github.com/robfig/cron/v3"
)

// counter counts runs by their token.
type counter struct {
	mu     sync.Mutex // guards tokens
	tokens []int64
}

func (c *counter) run(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	token, _ := fencelock.TokenFrom(ctx)
	c.tokens = append(c.tokens, token)
	return nil
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tokens)
}

func job(store *memlock.Engine, cfg cron.Config) *cron.Job {
	return cron.New(fencelock.New(store.Client(), nil), "job", &cfg)
}

// Three schedulers, one run for each tick.
func TestAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var runs counter
		for range 3 {
			c := robfig.New(robfig.WithSeconds())
			if _, err := robfigcron.Add(t.Context(), c, "*/20 * * * * *", job(store, cron.Config{}), runs.run); err != nil {
				t.Fatal(err)
			}
			c.Start()
			defer c.Stop()
		}
		time.Sleep(10*time.Minute + time.Second)
		if got := runs.count(); got != 30 {
			t.Errorf("%d runs in ten minutes, want 30", got)
		}
	})
}

// Instances in other zones agree on the tick; one in the zone of the schedule.
func TestAddKeepsTheZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var mu sync.Mutex // guards ticks
		var ticks []string
		east := time.FixedZone("east", 3600)
		j := job(store, cron.Config{OnTick: func(run cron.Run, _ error) {
			mu.Lock()
			defer mu.Unlock()
			ticks = append(ticks, run.Tick.In(east).Format(time.TimeOnly))
		}})
		c := robfig.New(robfig.WithLocation(east))
		if _, err := robfigcron.Add(t.Context(), c, "30 5 * * *", j, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		c.Start()
		defer c.Stop()
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(ticks) != 2 || ticks[0] != "05:30:00" {
			t.Errorf("ran at %v", ticks)
		}
	})
}

// "@every" on schedulers that were started at different times: one run an hour.
// They run already when the entries are added.
func TestAddEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var runs counter
		for range 3 {
			time.Sleep(7 * time.Minute)
			c := robfig.New()
			c.Start()
			defer c.Stop()
			if _, err := robfigcron.Add(t.Context(), c, "@every 1h", job(store, cron.Config{}), runs.run); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Hour)
		if got := runs.count(); got != 10 {
			t.Errorf("%d runs", got)
		}
	})
}

func TestAddRefuses(t *testing.T) {
	c := robfig.New()
	if _, err := robfigcron.Add(t.Context(), c, "nonsense", job(memlock.New(nil), cron.Config{}), nil); err == nil {
		t.Error("took a spec that makes no sense")
	}
	if _, err := robfigcron.Add(t.Context(), c, "@hourly", cron.New(nil, "", nil), nil); !errors.Is(err, fencelock.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if left := c.Entries(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestWrapperRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		job      *cron.Job
		schedule robfig.Schedule
	}{
		"no name":  {cron.New(nil, "", nil), &robfig.SpecSchedule{}},
		"catch-up": {job(memlock.New(nil), cron.Config{CatchUp: 1}), &robfig.SpecSchedule{}},
		"@every":   {job(memlock.New(nil), cron.Config{}), robfig.Every(time.Hour)},
	} {
		if _, err := robfigcron.Wrapper(t.Context(), robfig.New(), c.job, c.schedule); !errors.Is(err, fencelock.ErrInvalid) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// Ticks that came due while no instance ran are made up for when the scheduler starts,
// or when the entry is added, once on all instances.
func TestAddCatchesUp(t *testing.T) {
	for _, started := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(3 * time.Minute)
			store := memlock.New(nil)
			var runs counter
			for range 3 {
				c := robfig.New()
				if started {
					c.Start()
				}
				j := job(store, cron.Config{CatchUp: 1, Late: 4 * time.Minute})
				if _, err := robfigcron.Add(t.Context(), c, "*/5 * * * *", j, runs.run); err != nil {
					t.Fatal(err)
				}
				c.Start()
				defer c.Stop()
				time.Sleep(time.Second)
				if n := len(c.Entries()); n != 1 {
					t.Errorf("%d entries", n)
				}
			}
			if got := runs.count(); got != 1 {
				t.Errorf("started before %v: %d runs at the start", started, got)
			}
			time.Sleep(5 * time.Minute)
			if got := runs.count(); got != 2 {
				t.Errorf("started before %v: %d runs with the next tick", started, got)
			}
		})
	}
}

func TestWrapper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		schedule, err := robfig.ParseStandard("*/5 * * * *")
		if err != nil {
			t.Fatal(err)
		}
		var runs counter
		for range 3 {
			c := robfig.New()
			once, err := robfigcron.Wrapper(t.Context(), c, job(store, cron.Config{}), schedule)
			if err != nil {
				t.Fatal(err)
			}
			c.Schedule(schedule, robfig.NewChain(once).Then(robfig.FuncJob(func() { _ = runs.run(t.Context()) })))
			c.Start()
			defer c.Stop()
		}
		time.Sleep(time.Hour + time.Minute)
		if got := runs.count(); got != 12 {
			t.Errorf("%d runs", got)
		}
	})
}

// Stopping: the context ends the run, and the scheduler waits for it.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := robfig.New()
		begun := time.Now()
		if _, err := robfigcron.Add(ctx, c, "@hourly", job(memlock.New(nil), cron.Config{}), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		c.Start()
		time.Sleep(90 * time.Minute)
		cancel()
		<-c.Stop().Done()
		if took := time.Since(begun); took != 91*time.Minute {
			t.Errorf("stopped after %v", took)
		}
	})
}

// rearms counts how often a scheduler has calculated its timer again for an entry that does not exist.
type rearms struct{ count atomic.Int64 }

func (*rearms) Error(error, string, ...any) {}

func (r *rearms) Info(what string, pairs ...any) {
	if what == "removed" && slices.Contains(pairs, any(robfig.EntryID(0))) {
		r.count.Add(1)
	}
}

// The scheduler reads the wall clock at least once a minute, until the context ends or the entry is
// removed: its timer is late if the host was suspended or the clock was set forward.
func TestClockIsChecked(t *testing.T) {
	schedule, err := robfig.ParseStandard("0 3 * * *")
	if err != nil {
		t.Fatal(err)
	}
	add := func(ctx context.Context, c *robfig.Cron, j *cron.Job) (robfig.EntryID, error) {
		return robfigcron.Add(ctx, c, "0 3 * * *", j, func(context.Context) error { return nil })
	}
	wrap := func(ctx context.Context, c *robfig.Cron, j *cron.Job) (robfig.EntryID, error) {
		_, err := robfigcron.Wrapper(ctx, c, j, schedule)
		return 0, err
	}
	for name, schedule := range map[string]func(context.Context, *robfig.Cron, *cron.Job) (robfig.EntryID, error){"Add": add, "Wrapper": wrap} {
		for _, remove := range []bool{false, true} {
			if remove && name == "Wrapper" {
				continue // it has no entry
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var checks rearms
				c := robfig.New(robfig.WithLogger(&checks))
				c.Start()
				defer c.Stop()
				id, err := schedule(ctx, c, job(memlock.New(nil), cron.Config{}))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				before := checks.count.Load()
				if before < 60 {
					t.Errorf("%s: %d checks in an hour", name, before)
				}
				if remove {
					c.Remove(id)
				} else {
					cancel()
				}
				time.Sleep(time.Hour)
				if after := checks.count.Load(); after != before {
					t.Errorf("%s, removed %v: %d checks after its end", name, remove, after-before)
				}
			})
		}
	}
}

// dropped adds an entry to a scheduler, starts and stops it, and drops it.
func dropped(t *testing.T) weak.Pointer[robfig.Cron] {
	c, job := robfig.New(), job(memlock.New(nil), cron.Config{})
	if _, err := robfigcron.Add(context.Background(), c, "0 3 * * *", job, new(counter).run); err != nil {
		t.Fatal(err)
	}
	if _, err := robfigcron.Wrapper(context.Background(), c, job, cron.Every(time.Hour)); err != nil {
		t.Fatal(err)
	}
	c.Start()
	<-c.Stop().Done()
	return weak.Make(c)
}

// A scheduler that was stopped and dropped is garbage, even if the context of its runs never ends.
func TestStoppedSchedulerIsGarbage(t *testing.T) {
	c := dropped(t)
	for end := time.Now().Add(20 * time.Second); c.Value() != nil; time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		if time.Now().After(end) {
			t.Fatal("something still refers to the scheduler")
		}
	}
}
