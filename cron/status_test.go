package cron_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/google/go-cmp/cmp"
)

// Every host can say when the job last ran, and how that ended.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := fleet(2, 0, cron.Config{})
		if d := cmp.Diff(cron.Status{Job: "job"}, all[1].status(t)); d != "" {
			t.Errorf("before the first tick: (-want +got)\n%s", d)
		}
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		last := &cron.Run{Tick: epoch, State: cron.StateRunning, Host: host, PID: os.Getpid(), Started: epoch}
		wanted := cron.Status{Job: "job", Tick: epoch, Last: last}
		for _, c := range []struct {
			after time.Duration
			err   error
			state cron.State
			text  string
		}{{time.Second, nil, cron.StateOK, ""}, {time.Minute, errors.New(strings.Repeat("broken", 1000)), cron.StateFailed, strings.Repeat("broken", 1000)[:1024]}} {
			wanted.Tick, last.Tick, last.Started = time.Now().UTC().Round(0), time.Now().UTC().Round(0), time.Now().UTC().Round(0)
			last.State, last.Ended, last.Error = cron.StateRunning, time.Time{}, ""
			_ = all[0].job.Tick(t.Context(), time.Now(), func(ctx context.Context) error {
				last.Token, _ = fencelock.TokenFrom(ctx)
				if d := cmp.Diff(wanted, all[1].status(t)); d != "" {
					t.Errorf("in the run: (-want +got)\n%s", d)
				}
				time.Sleep(c.after)
				return c.err
			})
			last.State, last.Ended, last.Error = c.state, time.Now().UTC().Round(0), c.text
			if d := cmp.Diff(wanted, all[1].status(t)); d != "" {
				t.Errorf("afterwards: (-want +got)\n%s", d)
			}
		}
	})
}

// A scheduler that knows the schedule leaves in the record when the next tick is due.
func TestStatusKnowsTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		deploy(t.Context(), 90*time.Minute, cron.Every(time.Hour), time.Second, in)
		if s := in.status(t); !s.Next.Equal(epoch.Add(2 * time.Hour)) {
			t.Errorf("%+v", s)
		}
		if err := in.job.Tick(t.Context(), time.Now(), nothing); err != nil {
			t.Fatal(err)
		}
		if s := in.status(t); !s.Next.IsZero() {
			t.Errorf("after a tick of no schedule: %+v", s)
		}
	})
}

// A run whose beginning could not be written is told with the time at which it began.
func TestStartedWhenTheBeginningWasNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine faulty
		store, books := memlock.New(nil), newLedger()
		in := books.instance(store, engine.through, cron.Config{})
		engine.refuse.Store(100)
		err := in.job.Now(t.Context(), func(context.Context) error {
			engine.refuse.Store(0)
			time.Sleep(time.Minute)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if s := in.status(t); s.Last == nil || s.Last.Ended.Sub(s.Last.Started) < time.Minute {
			t.Errorf("%+v", s.Last)
		}
	})
}

// A schedule whose next tick is in another millennium.
func TestNextTickFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{CatchUp: 1})
		s := times{time.Now(), time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}
		due, err := in.job.Due(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := due.TickAll(t.Context(), due.Take(time.Now()), books.work(epoch, 0)); err != nil {
			t.Error(err)
		}
	})
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		for _, name := range []string{"b/2", "a", "b/1"} {
			if err := cron.New(in.locks, name, nil).Tick(t.Context(), epoch, nothing); err != nil {
				t.Fatal(err)
			}
		}
		for prefix, want := range map[string]string{"": "a b/1 b/2", "b/": "b/1 b/2", "c": ""} {
			list, err := cron.List(t.Context(), in.locks, prefix)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range list {
				names = append(names, s.Job)
				if s.Last == nil || s.Last.State != cron.StateOK || !s.Tick.Equal(epoch) {
					t.Errorf("%+v", s)
				}
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%q: %q, want %q", prefix, got, want)
			}
		}
	})
}

// A record that is not a job's hides no other one, and is reported.
func TestListSkipsWhatIsNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		for _, name := range []string{"a", "z"} {
			if err := cron.New(in.locks, name, nil).Tick(t.Context(), epoch, nothing); err != nil {
				t.Fatal(err)
			}
		}
		for key, value := range map[string]string{"cron/m": "\xff", "cron/n": "{}", "cron/o": `{"job":7}`, "cron/p": `{"job":"a"}`} {
			if _, err := in.engine.Records().Swap(t.Context(), key, []byte(value), "", 0); err != nil {
				t.Fatal(err)
			}
		}
		list, err := cron.List(t.Context(), in.locks, "")
		want(t, "a list of jobs", err, fencelock.ErrConfig)
		for _, key := range []string{`"cron/m"`, `"cron/n"`, `"cron/o"`, `"cron/p"`} {
			if err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s is not named: %v", key, err)
			}
		}
		if len(list) != 2 || list[0].Job != "a" || list[1].Job != "z" {
			t.Errorf("%+v", list)
		}
	})
}

// A paused job runs on no host, and says so; when it goes on nothing is made up for.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, books := fleet(3, 0, cron.Config{Late: 12 * time.Hour, CatchUp: 99})
		time.AfterFunc(90*time.Minute, func() {
			if err := all[0].job.Pause(t.Context(), "the disk is full"); err != nil {
				t.Error(err)
			}
		})
		time.AfterFunc(270*time.Minute, func() {
			books.mu.Lock()
			if books.skipped[cron.ReasonPaused] != 9 { // three ticks on three hosts
				t.Errorf("%v", books.skipped)
			}
			books.mu.Unlock()
			if err := all[2].job.Resume(t.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		deploy(t.Context(), 5*time.Hour+time.Minute, cron.Every(time.Hour), 0, all...)
		ran := map[time.Duration]bool{}
		for tick := range books.runs {
			if at := tick.Sub(epoch); at > 0 {
				ran[at] = true
			}
		}
		if d := cmp.Diff(map[time.Duration]bool{time.Hour: true, 5 * time.Hour: true}, ran); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		raised := cron.New(all[1].locks, "job", &all[1].cfg)
		wantSkipped(t, raised.Tick(t.Context(), epoch.Add(3*time.Hour), nothing), cron.ReasonClaimed)
	})
}

func TestPausedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		if err := in.job.Resume(t.Context()); err != nil {
			t.Error(err)
		}
		if list, err := cron.List(t.Context(), in.locks, ""); err != nil || len(list) != 0 {
			t.Errorf("a job that was never seen: %v, %v", list, err)
		}
		for _, reason := range []string{"the disk is full", "and broken"} {
			if err := in.job.Pause(t.Context(), reason); err != nil {
				t.Fatal(err)
			}
			s := in.status(t)
			if s.Paused == nil || s.Paused.Reason != reason || s.Paused.Host == "" || !s.Paused.Since.Equal(epoch) || s.Last != nil {
				t.Errorf("%+v", s)
			}
		}
		err := in.job.Tick(t.Context(), epoch, nothing)
		wantSkipped(t, err, cron.ReasonPaused)
		if !strings.Contains(err.Error(), "the job is paused since 2000-01-01T00:00:00Z by") || !strings.Contains(err.Error(), ": and broken") {
			t.Error(err)
		}
		wantSkipped(t, in.job.Now(t.Context(), nothing), cron.ReasonPaused)
		if err := in.job.Resume(t.Context()); err != nil {
			t.Error(err)
		}
		if err := in.job.Now(t.Context(), nothing); err != nil {
			t.Error(err)
		}
		if s := in.status(t); s.Paused != nil {
			t.Errorf("%+v", s)
		}
	})
}

// A tick, or a call of Now, that waits for the run before it does not begin during a pause.
func TestPauseWhileATickWaits(t *testing.T) {
	for what, begin := range map[string]func(*instance, context.Context) error{
		"a tick": func(in *instance, ctx context.Context) error { return in.job.Tick(ctx, time.Now(), nothing) },
		"now":    func(in *instance, ctx context.Context) error { return in.job.Now(ctx, nothing) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, books := fleet(2, 0, cron.Config{Overlap: cron.OverlapLast, Late: time.Hour})
				go func() { _ = all[0].job.Tick(t.Context(), epoch, books.work(epoch, time.Minute)) }() // ends with the run
				time.Sleep(time.Second)
				time.AfterFunc(time.Second, func() {
					if err := all[0].job.Pause(t.Context(), "the disk is full"); err != nil {
						t.Error(err)
					}
				})
				wantSkipped(t, begin(all[1], t.Context()), cron.ReasonPaused)
				if s := all[0].status(t); s.Last == nil || s.Last.State != cron.StateOK || !s.Last.Tick.Equal(epoch) {
					t.Errorf("%+v", s.Last)
				}
				if s, err := all[0].locks.Status(t.Context(), "job"); err != nil || len(s.Holders) > 0 {
					t.Errorf("%+v, %v", s, err)
				}
			})
		})
	}
}

// A run that has begun goes on in a pause, also if it learns late that it has begun.
func TestPauseAfterTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine faulty
		in := newLedger().instance(memlock.New(nil), engine.through, cron.Config{})
		engine.lose.Store(1) // the answer that the beginning is written
		time.AfterFunc(10*time.Millisecond, func() {
			if err := in.job.Pause(t.Context(), "the disk is full"); err != nil {
				t.Error(err)
			}
		})
		if err := in.job.Now(t.Context(), nothing); err != nil {
			t.Error(err)
		}
		if s := in.status(t); s.Last == nil || s.Last.State != cron.StateOK || s.Paused == nil {
			t.Errorf("%+v", s)
		}
	})
}

// What came due in a pause is not run later, also when the record forgets older ticks.
func TestPauseIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{Late: 12 * time.Hour})
		claim := func(minute int) error {
			return in.job.Tick(t.Context(), epoch.Add(time.Duration(minute)*time.Minute), nothing)
		}
		time.Sleep(4 * time.Hour)
		for minute := range 100 {
			if err := claim(minute); err != nil {
				t.Fatal(err)
			}
		}
		err := errors.Join(in.job.Pause(t.Context(), ""), in.job.Resume(t.Context()))
		time.Sleep(2 * time.Minute)
		if err = errors.Join(err, claim(241), claim(242)); err != nil {
			t.Fatal(err)
		}
		wantSkipped(t, claim(200), cron.ReasonClaimed)
	})
}

// A pause lasts until Resume.
func TestPauseLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		if err := in.job.Pause(t.Context(), "for years"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * 365 * 24 * time.Hour)
		wantSkipped(t, in.job.Tick(t.Context(), time.Now(), nothing), cron.ReasonPaused)
	})
}

// Resume from a host or an engine whose clock is behind lets no tick be taken again.
func TestResumeForgetsNoTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine faulty
		store, books := memlock.New(nil), newLedger()
		in := books.instance(store.Client(), engine.through, cron.Config{Late: 12 * time.Hour})
		deploy(t.Context(), 200*time.Minute+30*time.Second, cron.Every(time.Minute), 0, in)
		engine.ahead.Store(-int64(30 * 24 * time.Hour))
		if err := in.job.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantSkipped(t, in.job.Tick(t.Context(), epoch.Add(10*time.Minute), nothing), cron.ReasonClaimed)
	})
}

// A job that stands still, since the clocks of the engine and of a host were once days ahead,
// goes on when it is resumed. A pause in between changes nothing of that.
func TestResumeOfAJobThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine faulty
		in := newLedger().instance(memlock.New(nil), engine.through, cron.Config{Skew: 13 * 24 * time.Hour})
		engine.ahead.Store(int64(30 * 24 * time.Hour))
		for i := range 150 {
			if err := in.job.Tick(t.Context(), epoch.Add(10*24*time.Hour+time.Duration(i)*time.Minute), nothing); err != nil {
				t.Fatal(err)
			}
		}
		engine.ahead.Store(0)
		time.Sleep(time.Hour)
		resume := func() {
			t.Helper()
			if err := in.job.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := in.job.Pause(t.Context(), "it stands still"); err != nil {
			t.Fatal(err)
		}
		resume()
		wantSkipped(t, in.job.Tick(t.Context(), time.Now().Add(time.Minute), nothing), cron.ReasonClaimed)
		resume()
		wantSkipped(t, in.job.Tick(t.Context(), time.Now(), nothing), cron.ReasonClaimed)
		if err := in.job.Tick(t.Context(), time.Now().Add(time.Minute), nothing); err != nil {
			t.Error(err)
		}
	})
}

// A run that somebody asked for is a run like others: it excludes them, is seen, and takes
// no tick.
func TestNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, books := fleet(2, 0, cron.Config{})
		time.Sleep(time.Minute)
		called := time.Now()
		err := all[0].job.Now(t.Context(), func(ctx context.Context) error {
			if tick, ok := cron.TickFrom(ctx); !ok || !tick.Equal(called) {
				t.Errorf("made for %v, %v", tick, ok)
			}
			wantSkipped(t, all[1].job.Now(ctx, nothing), cron.ReasonOverlapped)
			wantSkipped(t, all[1].job.Tick(ctx, epoch.Add(time.Second), nothing), cron.ReasonOverlapped)
			if s := all[1].status(t); s.Last == nil || s.Last.State != cron.StateRunning || !s.Last.Tick.IsZero() {
				t.Errorf("%+v", s.Last)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := all[1].job.Tick(t.Context(), called, books.work(called, 0)); err != nil {
			t.Errorf("the tick of the same instant: %v", err)
		}
	})
}

// Where there are no records, jobs run and can be started, and the rest says that it
// cannot be done.
func TestWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newLedger().instance(memlock.New(nil), claimsOnly, cron.Config{})
		if err := in.job.Now(t.Context(), nothing); err != nil {
			t.Error(err)
		}
		if err := in.job.Tick(t.Context(), epoch, nothing); err != nil {
			t.Error(err)
		}
		want(t, "Pause", in.job.Pause(t.Context(), ""), fencelock.ErrUnsupported)
		want(t, "Resume", in.job.Resume(t.Context()), fencelock.ErrUnsupported)
		_, err := in.job.Status(t.Context())
		want(t, "Status", err, fencelock.ErrUnsupported)
		_, err = cron.List(t.Context(), in.locks, "")
		want(t, "List", err, fencelock.ErrUnsupported)
	})
}

// blind cannot see who holds a name.
type blind struct{ faultyEngine }

func (blind) List(_ context.Context, q driver.Query) ([]driver.Status, error) {
	return []driver.Status{{Name: q.Prefix, Trouble: errors.New("too many open files")}}, nil
}

// A run whose lock cannot be seen is not called lost.
func TestStatusWhenTheLockCannotBeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		in := books.instance(store.Client(), nil, cron.Config{})
		eyes := books.instance(store.Client(), func(e driver.Engine) driver.Engine {
			return blind{faultyEngine{e, e.(driver.Lister), e.(driver.RecordKeeper).Records()}}
		}, cron.Config{})
		if err := in.job.Tick(t.Context(), epoch, func(context.Context) error {
			if s := eyes.status(t); s.Last == nil || s.Last.State != cron.StateRunning {
				t.Errorf("%+v", s.Last)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}
