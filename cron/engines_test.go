//go:build unix

package cron_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

// Eight clocks, and a job that is done long before the next of them has its tick:
// each tick is run once, on the engines that ship, with records and with claims; and each
// can say how that ended. With FENCELOCK_SLOW set, the clocks are five seconds from one to
// the next.
func TestEveryTickRunsOnceOnRealEngines(t *testing.T) {
	t.Parallel()
	const maxTTL = time.Hour // Redlock keeps claims for no longer
	for name, connect := range engines.All(maxTTL) {
		t.Run(name, func(t *testing.T) {
			client := connect(t)
			var jobs sync.WaitGroup
			for job, claims := range map[string]bool{"records": false, "claims": true} {
				jobs.Go(func() { everyTickOnce(t, job, claims, client) })
			}
			jobs.Wait()
		})
	}
}

// everyTickOnce runs eight instances of a job, which make claims or find records, if there
// are any.
func everyTickOnce(t *testing.T, name string, claims bool, client engines.Connect) {
	count, gap, apart := 10, 50*time.Millisecond, 300*time.Millisecond
	if os.Getenv("FENCELOCK_SLOW") != "" {
		count, gap, apart = 100, 200*time.Millisecond, 5*time.Second
	}
	books := newLedger()
	var all []*instance
	for i := range 8 {
		in := &instance{behind: time.Duration(i) * apart, ledger: books}
		engine := client()
		if claims {
			engine = claimsOnly(engine)
		}
		in.locks = fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl})
		in.job = cron.New(in.locks, name, &cron.Config{OnTick: books.note, Overlap: cron.OverlapLast, Late: 10 * time.Minute})
		if err := in.job.Tick(t.Context(), time.Now(), nothing); err != nil { // connects
			t.Errorf("%s: instance %d: %v", name, i, err)
			return
		}
		all = append(all, in)
	}
	ticks := series(count, gap)
	var schedulers sync.WaitGroup
	for _, in := range all {
		schedulers.Go(func() { in.schedule(t.Context(), ticks, time.Millisecond) })
	}
	schedulers.Wait()
	for i, tick := range ticks {
		if books.runs[tick] != 1 {
			t.Errorf("%s: tick %d was run %d times", name, i, books.runs[tick])
		}
	}
	if len(books.failed) > 0 || books.skipped[cron.ReasonClaimed] != 7*len(ticks) {
		t.Errorf("%s: skipped %v, failed %v", name, books.skipped, books.failed)
	}
	if _, err := all[1].locks.Records(); err != nil { // without records nobody can tell
		return
	}
	last := time.Now()
	if err := all[0].job.Tick(t.Context(), last, nothing); err != nil { // nobody is in its way
		t.Errorf("%s: %v", name, err)
	}
	for i, in := range all {
		s, err := in.job.Status(t.Context())
		if err != nil || !s.Tick.Equal(last) || s.Last == nil || s.Last.State != cron.StateOK || s.Last.Token == 0 {
			t.Errorf("%s: instance %d says %+v, %v", name, i, s, err)
		}
	}
}
