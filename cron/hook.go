package cron

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/internal/cronhook"
)

func init() {
	cronhook.NewDue = func(job any, s cronhook.Schedule) (cronhook.Due, error) { return job.(*Job).newDue(s) }
}

// finisher returns the finish function of a run, or the error of its start.
func finisher(r *ongoing, err error) (cronhook.Finish, error) {
	if err != nil {
		return nil, err
	}
	return r.finish, nil
}

// Start implements cronhook.Due.
func (d *due) Start(ctx context.Context, tick time.Time) (cronhook.Finish, error) {
	return finisher(d.job.begin(ctx, tick.Round(0), (*Job).start))
}

// Report implements cronhook.Due.
func (d *due) Report(now time.Time, why error) {
	d.job.report(context.Background(), Run{Tick: now.UTC()}, why)
}

// CatchUp implements cronhook.Due.
func (d *due) CatchUp() int { return d.job.cfg.CatchUp }

// RunsOverlap implements cronhook.Due.
func (d *due) RunsOverlap() bool { return d.job.cfg.Overlap == OverlapAllow }
