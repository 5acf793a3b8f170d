package main

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
)

// report is written by one instance at each scheduled time.
type report struct {
	job   *cron.Job
	every time.Duration
	data  shop
}

func newReport(locks *fencelock.Locker, data shop, cfg config, log *slog.Logger) *report {
	return &report{cron.New(locks, "report", &cron.Config{Late: cfg.late, Logger: log}), cfg.report, data}
}

// run returns when ctx has ended and the current run is over.
func (r *report) run(ctx context.Context) error {
	err := r.job.Run(ctx, cron.Every(r.every), r.write)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (r *report) write(ctx context.Context) error {
	waiting, err := r.data.waiting(ctx)
	if err != nil {
		return err
	}
	tick, _ := cron.TickFrom(ctx)
	return r.data.report(ctx, tick.Format(time.RFC3339), strconv.FormatInt(waiting, 10))
}
