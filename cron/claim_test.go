package cron_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// A rolling deployment: first all instances know no records, then half of them, then
// none. Their clocks are seconds apart, and every tick is run once, unless the new ones
// make no claims.
func TestRollingDeployment(t *testing.T) {
	for name, c := range map[string]struct {
		claims time.Duration
		again  bool // whether ticks are run twice
	}{"as it comes": {0, false}, "without claims": {-1, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, books := memlock.New(nil), newLedger()
				var all []*instance
				for i := range 8 {
					through := claimsOnly
					if i%2 == 1 {
						through = nil
					}
					in := books.instance(store.Client(), through, cron.Config{Claims: c.claims})
					in.behind = time.Duration([]int{3, 1, 0, 4, 6, 7, 5, 2}[i]) * 5 * time.Second
					all = append(all, in)
				}
				older := []*instance{all[0], all[2], all[4], all[6]}
				newer := []*instance{all[1], all[3], all[5], all[7]}
				var ticks []time.Time
				for i, deployed := range [][]*instance{older, all, all, newer} {
					if i == 2 { // now the first is one that knows records
						for _, in := range all {
							in.behind = 35*time.Second - in.behind
						}
					}
					some := series(40, 700*time.Millisecond)
					ticks = append(ticks, some...)
					var schedulers sync.WaitGroup
					for _, in := range deployed {
						schedulers.Go(func() { in.schedule(t.Context(), some, time.Millisecond) })
					}
					schedulers.Wait()
				}
				if !c.again {
					books.wantRuns(t, ticks, 1)
				}
				if again := len(books.tokens) > len(ticks); again != c.again || len(books.failed) > 0 {
					t.Errorf("%d runs of %d ticks, failed %v", len(books.tokens), len(ticks), books.failed)
				}
			})
		})
	}
}

// An older instance that has run a tick leaves it in the record of those that found its
// claim, so that nobody runs it when the claim is over.
func TestClaimOfAnOlderInstanceIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		older := books.instance(store.Client(), claimsOnly, cron.Config{})
		newer := books.instance(store.Client(), nil, cron.Config{})
		if err := older.job.Tick(t.Context(), epoch, books.work(epoch, 0)); err != nil {
			t.Fatal(err)
		}
		wantSkipped(t, newer.job.Tick(t.Context(), epoch, nothing), cron.Claimed)
		time.Sleep(time.Hour)
		raised := books.instance(store.Client(), nil, cron.Config{Late: 2 * time.Hour})
		wantSkipped(t, raised.job.Tick(t.Context(), epoch, nothing), cron.Claimed)
		books.wantEach(t, 1)
	})
}

// A tick that an older instance has run before there was a record is not run by an instance that
// allows ticks to be later.
func TestTickOlderThanTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		older := books.instance(store.Client(), claimsOnly, cron.Config{})
		if err := older.job.Tick(t.Context(), epoch, books.work(epoch, 0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := books.instance(store.Client(), nil, cron.Config{}).job.Tick(t.Context(), time.Now(), nothing); err != nil {
			t.Fatal(err)
		}
		raised := books.instance(store.Client(), nil, cron.Config{Late: 2 * time.Hour})
		wantSkipped(t, raised.job.Tick(t.Context(), epoch, nothing), cron.Claimed)
	})
}

// An instance that knows records stands still between its record and its claim, until an
// older one has run the tick and its claim is over.
func TestInstanceThatStandsStillBeforeItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		cfg := cron.Config{Skew: time.Second, Late: time.Second}
		older := books.instance(store.Client(), claimsOnly, cfg)
		newer := books.instance(store.Client(), slowLocks, cfg)
		asked := make(chan error, 1)
		go func() { asked <- newer.job.Tick(t.Context(), epoch, books.work(epoch, 0)) }() // ends in five seconds
		synctest.Wait()
		if s := newer.status(t); !s.Tick.Equal(epoch) {
			t.Fatalf("the record says %+v", s)
		}
		if err := older.job.Tick(t.Context(), epoch, books.work(epoch, 0)); err != nil {
			t.Fatal(err)
		}
		wantSkipped(t, <-asked, cron.TooLate)
		books.wantEach(t, 1)
	})
}

// slowLocks lets more time pass before each lock than a claim is kept.
func slowLocks(e driver.Engine) driver.Engine {
	slow := e.(*memlock.Engine).Client()
	slow.Delay(5 * time.Second)
	return faultyEngine{slow, e.(driver.Lister), e.(driver.Registrar).Register()}
}

// Two weeks after the first record no tick is claimed by a lock any more.
func TestClaimsComeToAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{})
		for i, tick := range series(30, 24*time.Hour) {
			time.Sleep(time.Until(tick))
			if err := in.job.Tick(t.Context(), tick, books.work(tick, 0)); err != nil {
				t.Fatal(err)
			}
			claims, err := in.locks.List(t.Context(), "job@")
			if err != nil || (len(claims) > 0) != (i < 14) {
				t.Errorf("tick %d: %v, %v", i, claims, err)
			}
		}
	})
}
