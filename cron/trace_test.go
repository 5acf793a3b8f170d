package cron_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/memlock"
)

// The tracer of the Locker gets the outcome of each tick in one word, and the locks of a job are of
// the kind cron, those of claims as well.
func TestTracerGetsTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		kinds := map[string]int{}
		tracer := &fencelock.Tracer{
			TickEnd: func(_ context.Context, d fencelock.TraceTick) {
				got = append(got, d.Job+" "+d.Outcome)
				if ran := d.Outcome == "ok" || d.Outcome == "failed"; ran != (d.Token > 0) || ran && d.Took != time.Second || d.Engine != "memory" || d.Tick.IsZero() {
					t.Errorf("%+v", d)
				}
			},
			AcquireEnd: func(_ context.Context, d fencelock.TraceAcquireEnd) { kinds[d.Kind]++ },
		}
		engine := memlock.New(nil)
		locks := fencelock.New(claimsOnly(engine), &fencelock.Config{Tracer: tracer}).With(fencelock.Options{TTL: ttl})
		job := cron.New(fencelock.New(engine, &fencelock.Config{Tracer: tracer}), "job", nil)
		work := func(err error) func(context.Context) error {
			return func(context.Context) error { time.Sleep(time.Second); return err }
		}
		tick := time.Now()
		_ = job.Tick(t.Context(), tick, work(nil))
		_ = job.Tick(t.Context(), tick, nothing)
		_ = job.Tick(t.Context(), tick.Add(time.Second), work(errors.New("broken")))
		_ = job.Tick(t.Context(), tick.Add(-2*time.Minute), nothing)
		_ = job.Now(t.Context(), func(ctx context.Context) error {
			_ = job.Now(ctx, nothing)
			return work(nil)(ctx)
		})
		if err := job.Pause(t.Context(), "maintenance"); err != nil {
			t.Fatal(err)
		}
		_ = job.Now(t.Context(), nothing)
		engine.Refuse(errors.New("down"))
		_ = job.Now(t.Context(), nothing)
		engine.Refuse(nil)
		_ = cron.New(locks, "claims", nil).Tick(t.Context(), time.Now(), work(nil))
		want := []string{"job ok", "job claimed", "job failed", "job late", "job overlapped", "job ok", "job paused", "job error", "claims ok"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if kinds[fencelock.KindCron] < 5 || len(kinds) != 1 {
			t.Errorf("acquisitions by kind: %v", kinds)
		}
	})
}
