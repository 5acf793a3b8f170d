package cron_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// A deployment that lets ticks be later than the one before finds them all done. Claims
// alone are over by then: that is what is weaker without records.
func TestRaisedLateRunsNoTickAgain(t *testing.T) {
	for name, c := range map[string]struct {
		through func(driver.Engine) driver.Engine
		again   int
	}{"records": {nil, 0}, "claims": {claimsOnly, 12}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, books := memlock.New(nil), newLedger()
				for i, cfg := range []cron.Config{{}, {Late: 12 * time.Hour, CatchUp: 99, Overlap: cron.OverlapAllow}} {
					one, two := books.instance(store.Client(), c.through, cfg), books.instance(store.Client(), c.through, cfg)
					length := []time.Duration{12*time.Hour + 30*time.Minute, 10 * time.Minute}[i]
					deploy(t.Context(), length, cron.Every(time.Hour), time.Second, one, two)
				}
				if runs := len(books.tokens); len(books.runs) != 12 || runs != 12+c.again {
					t.Errorf("%d runs of %d ticks", runs, len(books.runs))
				}
			})
		})
	}
}

// epoch is when a bubble begins.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// All clocks are set back by 30 days, that of the engine too: no tick of these days is run
// again, and the first new one is.
func TestAllClocksSetBack(t *testing.T) {
	var records []driver.Record
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		books.month(t, store, 120)
		books.wantEach(t, 120)
		var err error
		if records, err = store.Records().List(t.Context(), ""); err != nil || len(records) != 1 {
			t.Fatalf("%v, %v", records, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // begins where the first began
		store, books := memlock.New(nil), newLedger()
		if _, err := store.Records().Swap(t.Context(), records[0].Key, records[0].Value, "", 0); err != nil {
			t.Fatal(err)
		}
		books.month(t, store, 125)
		books.wantEach(t, 5)
		for tick := range books.runs {
			if !tick.After(epoch.Add(30 * 24 * time.Hour)) {
				t.Errorf("%v was run again", tick)
			}
		}
	})
}

// month has two instances run ticks six hours apart.
func (l *ledger) month(t *testing.T, store *memlock.Engine, count int) {
	ticks := series(count, 6*time.Hour)
	var schedulers sync.WaitGroup
	for range 2 {
		in := l.instance(store.Client(), nil, cron.Config{})
		schedulers.Go(func() { in.schedule(t.Context(), ticks, time.Second) })
	}
	schedulers.Wait()
}

// The clock of the engine alone is set back by 30 days, or forward: every tick is run once
// all the same, also when far more ticks come due than a record remembers. No deployment ends
// with a tick: one that had just been taken would be cut off.
func TestClockOfTheEngineIsSet(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"back": -30 * 24 * time.Hour, "forward": 30 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var engine faulty
				var all []*instance
				store, books := memlock.New(nil), newLedger()
				for range 2 {
					all = append(all, books.instance(store.Client(), engine.through, cron.Config{CatchUp: 1}))
				}
				zero := time.Now()
				engine.ahead.Store(int64(ahead / 2)) // when the record is made
				for _, next := range []time.Duration{0, ahead, 0} {
					deploy(t.Context(), 110*time.Minute+25*time.Second, cron.Every(time.Minute), time.Second, all...)
					engine.ahead.Store(int64(next))
				}
				deploy(t.Context(), 40*time.Second, cron.Every(time.Minute), time.Second, all...)
				books.wantEach(t, int(time.Since(zero)/time.Minute)+1) // and the last one before
			})
		})
	}
}

// The clock of one host is days ahead. What it takes from the days to come does not end the
// job for the others.
func TestHostWhoseClockIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		wrong := books.instance(store.Client(), nil, cron.Config{Skew: 13 * 24 * time.Hour})
		for i := range 150 {
			tick := time.Now().Add(10*24*time.Hour + time.Duration(i)*time.Minute)
			if err := wrong.job.Tick(t.Context(), tick, nothing); err != nil {
				t.Fatal(err)
			}
		}
		one, two := books.instance(store.Client(), nil, cron.Config{}), books.instance(store.Client(), nil, cron.Config{})
		deploy(t.Context(), 2*time.Hour+30*time.Second, cron.Every(time.Minute), time.Second, one, two)
		books.wantEach(t, 120)
	})
}

// The engine's clock is set back by 30 days. An instance that is started hours later, and
// makes up for all that was missed, finds that nothing was.
func TestEngineSetBackForgetsNoTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine faulty
		store, books := memlock.New(nil), newLedger()
		deploy(t.Context(), 30*time.Second, cron.Every(time.Minute), 0, books.instance(store.Client(), engine.through, cron.Config{}))
		engine.ahead.Store(-int64(30 * 24 * time.Hour))
		deploy(t.Context(), 4*time.Hour, cron.Every(time.Minute), 0, books.instance(store.Client(), engine.through, cron.Config{}))
		raised := cron.Config{Late: 3 * time.Hour, CatchUp: 999}
		deploy(t.Context(), time.Minute, cron.Every(time.Minute), 0, books.instance(store.Client(), engine.through, raised))
		books.wantEach(t, 241)
	})
}

// The clock of one host is days ahead, and that of the engine a second behind all others: ticks
// that are not past yet are remembered beside those of the days to come.
func TestTickBesideThoseOfAHostThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine faulty
		store, books := memlock.New(nil), newLedger()
		wrong := books.instance(store.Client(), engine.through, cron.Config{Skew: 13 * 24 * time.Hour})
		for i := range 150 {
			if err := wrong.job.Tick(t.Context(), epoch.Add(10*24*time.Hour+time.Duration(i)*time.Minute), nothing); err != nil {
				t.Fatal(err)
			}
		}
		engine.ahead.Store(-int64(time.Second))
		one, two := books.instance(store.Client(), engine.through, cron.Config{}), books.instance(store.Client(), engine.through, cron.Config{})
		deploy(t.Context(), 2*time.Hour+30*time.Second, cron.Every(time.Minute), 0, one, two)
		books.wantEach(t, 120)
	})
}

// Whatever the clock of the engine shows from one moment to the next, and in whatever order
// ticks are asked for: none is taken twice.
func TestNoTickIsTakenTwice(t *testing.T) {
	t.Parallel()
	seeds := uint64(2)
	if os.Getenv("FENCELOCK_SLOW") != "" {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { takeTicks(t, rand.New(rand.NewPCG(seed, 20))) })
		})
	}
}

// takeTicks makes random claims, and fails if two of them take the same tick.
func takeTicks(t *testing.T, rnd *rand.Rand) {
	var engine faulty
	taken := map[int]bool{}
	in := newLedger().instance(memlock.New(nil), engine.through, cron.Config{Skew: 6 * 24 * time.Hour, Late: 6 * 24 * time.Hour})
	for range 3000 {
		engine.ahead.Store(int64(time.Duration(rnd.IntN(14)-7) * 24 * time.Hour))
		minute := rnd.IntN(600) - 300
		if rnd.IntN(3) == 0 { // on a host that is days ahead, or behind
			minute += (rnd.IntN(10) - 5) * 24 * 60
		}
		err := in.job.Tick(t.Context(), epoch.Add(time.Duration(minute)*time.Minute), nothing)
		if err == nil && taken[minute] {
			t.Fatalf("minute %d was taken twice", minute)
		}
		taken[minute] = taken[minute] || err == nil
	}
}

// Instances take ticks in any order, and a tick that was passed over by others is not
// lost; one that the record has forgotten is not run.
func TestTicksOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{Late: 12 * time.Hour})
		time.Sleep(5 * time.Hour)
		tick := func(minute int) time.Time { return epoch.Add(time.Duration(minute) * time.Minute) }
		for i := 1; i <= 150; i++ {
			if i == 40 || i == 60 {
				continue
			}
			if err := in.job.Tick(t.Context(), tick(i), nothing); err != nil {
				t.Fatalf("tick %d: %v", i, err)
			}
		}
		if err := in.job.Tick(t.Context(), tick(60), nothing); err != nil {
			t.Error(err)
		}
		for _, i := range []int{1, 40, 60, 150} {
			wantSkipped(t, in.job.Tick(t.Context(), tick(i), nothing), cron.ReasonClaimed)
		}
	})
}

// The process is restarted while a tick comes due.
func TestRestartAcrossATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		cfg := cron.Config{Late: 10 * time.Minute, CatchUp: 1}
		var hosts sync.WaitGroup
		for _, down := range []time.Duration{59*time.Minute + 50*time.Second, 59*time.Minute + 55*time.Second} {
			hosts.Go(func() { // ends after its second deployment
				deploy(t.Context(), down, cron.Every(time.Hour), time.Second, books.instance(store.Client(), nil, cfg))
				time.Sleep(20 * time.Second)
				deploy(t.Context(), 90*time.Minute, cron.Every(time.Hour), time.Second, books.instance(store.Client(), nil, cfg))
			})
		}
		hosts.Wait()
		books.wantEach(t, 3) // at zero, in the restart, and afterwards
	})
}

// The engine is away when a tick comes due, and loses answers when it is back.
func TestEngineAwayAtTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine faulty
		store, books := memlock.New(nil), newLedger()
		var all []*instance
		for range 3 {
			all = append(all, books.instance(store.Client(), engine.through, cron.Config{}))
		}
		for hour := range 3 {
			time.AfterFunc(time.Duration(hour)*time.Hour+59*time.Minute+50*time.Second, func() {
				for _, in := range all {
					in.engine.Refuse(errors.New("no route"))
				}
			})
			time.AfterFunc(time.Duration(hour+1)*time.Hour+20*time.Second, func() {
				engine.lose.Store(int64(2 * hour))
				for _, in := range all {
					in.engine.Refuse(nil)
				}
			})
		}
		deploy(t.Context(), 3*time.Hour+2*time.Minute, cron.Every(time.Hour), time.Second, all...)
		books.wantEach(t, 3)
		if s := all[2].status(t); s.Last == nil || s.Last.State != cron.StateOK || !s.Last.Tick.Equal(epoch.Add(3*time.Hour)) {
			t.Errorf("%+v", s)
		}
	})
}

// An answer that was lost is found by the one who asked, and by nobody else: the tick is run once,
// and is taken once.
func TestLostAnswer(t *testing.T) {
	for _, lose := range []int64{1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			var engine faulty
			store, books := memlock.New(nil), newLedger()
			cfg := cron.Config{}
			one, two := books.instance(store.Client(), engine.through, cfg), books.instance(store.Client(), engine.through, cfg)
			engine.lose.Store(lose)
			if err := one.job.Tick(t.Context(), epoch, books.work(epoch, 0)); err != nil {
				t.Errorf("lost %d: %v", lose, err)
			}
			wantSkipped(t, two.job.Tick(t.Context(), epoch, books.work(epoch, 0)), cron.ReasonClaimed)
			wantSkipped(t, one.job.Tick(t.Context(), epoch, books.work(epoch, 0)), cron.ReasonClaimed)
			books.wantEach(t, 1)
			rec, err := store.Records().Get(t.Context(), "cron/job")
			if n := strings.Count(string(rec.Value), fmt.Sprint(epoch.UnixNano())); err != nil || n != 1 {
				t.Errorf("taken %d times: %s, %v", n, rec.Value, err)
			}
		})
	}
}

// The process that took a tick dies in its run. Nobody runs the tick again, the next one is
// run, and every host can see what happened.
func TestProcessThatDiesInItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := cron.Config{Late: 10 * time.Minute, CatchUp: 9}
		all, books := fleet(2, 0, cfg)
		time.AfterFunc(30*time.Second, all[0].engine.Kill)
		_ = all[0].job.Tick(t.Context(), epoch, books.work(epoch, time.Minute)) // its locks are lost
		if s := all[1].status(t); s.Last == nil || s.Last.State != cron.StateLost || !s.Last.Tick.Equal(epoch) || s.Last.Token == 0 {
			t.Errorf("%+v", s.Last)
		}
		deploy(t.Context(), 2*time.Minute, cron.Every(4*time.Minute), time.Second, all[1])
		if books.runs[epoch] != 1 {
			t.Errorf("the tick was run %d times", books.runs[epoch])
		}
		deploy(t.Context(), 2*time.Minute, cron.Every(4*time.Minute), time.Second, all[1])
		if s := all[1].status(t); s.Last.State != cron.StateOK || !s.Last.Tick.Equal(epoch.Add(4*time.Minute)) {
			t.Errorf("%+v", s.Last)
		}
	})
}

// An instance that stood still before it asked finds that the tick was taken.
func TestFrozenInstanceFindsTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, books := fleet(2, 0, cron.Config{Late: 12 * time.Hour})
		all[1].engine.Freeze()
		asked := make(chan error, 1)
		go func() { asked <- all[1].job.Tick(t.Context(), epoch, books.work(epoch, 0)) }() // ends after Thaw
		synctest.Wait()
		if err := all[0].job.Tick(t.Context(), epoch, books.work(epoch, 0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		all[1].engine.Thaw()
		wantSkipped(t, <-asked, cron.ReasonClaimed)
		books.wantEach(t, 1)
	})
}

// An instance that stood still in its run does not overwrite what later runs have told.
func TestStaleRunTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, books := fleet(2, 0, cron.Config{})
		ended := make(chan error, 1)
		frozen := make(chan struct{})
		go func() { // ends after Thaw
			ended <- all[0].job.Tick(t.Context(), epoch, func(context.Context) error {
				<-frozen
				return errors.New("too late")
			})
		}()
		synctest.Wait()
		all[0].engine.Freeze()
		time.Sleep(time.Minute) // its lease is over
		tick := time.Now()
		if err := all[1].job.Tick(t.Context(), tick, books.work(tick, time.Second)); err != nil {
			t.Fatal(err)
		}
		all[0].engine.Thaw()
		close(frozen)
		want(t, "the frozen one", <-ended, fencelock.ErrLost)
		if s := all[0].status(t); s.Last.State != cron.StateOK || !s.Last.Tick.Equal(tick) || s.Last.Error != "" {
			t.Errorf("%+v", s.Last)
		}
	})
}

// A record that another program wrote is a mistake in the deployment, and is told at once.
func TestRecordOfAnotherProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		for _, value := range []string{"", "{}", "42 17"} {
			rec, err := in.engine.Records().Get(t.Context(), "cron/job")
			if err == nil {
				_, err = in.engine.Records().Swap(t.Context(), "cron/job", []byte(value), rec.Version, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			want(t, "Tick", in.job.Tick(t.Context(), time.Now(), nothing), fencelock.ErrConfig)
			want(t, "Pause", in.job.Pause(t.Context(), ""), fencelock.ErrConfig)
			_, err = cron.List(t.Context(), in.locks, "")
			want(t, "List", err, fencelock.ErrConfig)
		}
		if time.Since(epoch) > 0 {
			t.Errorf("it took %v", time.Since(epoch))
		}
	})
}
