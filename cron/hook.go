package cron

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/cronhook"
)

func init() {
	cronhook.NewDue = func(job any, s cronhook.Schedule) (cronhook.Due, error) { return job.(*Job).newDue(s) }
	cronhook.Claim = func(ctx context.Context, job any, tick time.Time) error {
		j := job.(*Job)
		if j.invalid != nil {
			return j.invalid
		}
		return j.claim(ctx, tick.Round(0))
	}
	cronhook.StartUnder = func(ctx context.Context, job any, tick time.Time, lock *fencelock.Lock) (cronhook.Finish, error) {
		return finisher(job.(*Job).startUnder(ctx, tick, lock))
	}
}

// finisher returns how to finish a run, if it has begun.
func finisher(r *ongoing, err error) (cronhook.Finish, error) {
	if err != nil {
		return nil, err
	}
	return r.finish, nil
}

// Start is part of cronhook.Due.
func (d *due) Start(ctx context.Context, tick time.Time) (cronhook.Finish, error) {
	return finisher(d.job.begin(ctx, tick.Round(0), (*Job).start))
}

// Report is part of cronhook.Due.
func (d *due) Report(now time.Time, why error) {
	d.job.report(Run{Tick: now.UTC()}, why)
}

// CatchUp is part of cronhook.Due.
func (d *due) CatchUp() int { return d.job.cfg.CatchUp }

// RunsOverlap is part of cronhook.Due.
func (d *due) RunsOverlap() bool { return d.job.cfg.Overlap == OverlapAllow }
