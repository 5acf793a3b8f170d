// Package robfigcron runs the entries of a robfig/cron scheduler on exactly one
// of many instances: every instance adds the same entries, and each tick is run
// by the first that claims it.
//
//	c := cron.New()
//	_, err := robfigcron.Add(ctx, c, "0 3 * * *", job, bill)
//
// Most programs should use [Add]. [Wrapper] is for entries that are added in some
// other way.
package robfigcron

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/internal/cronhook"
	robfig "github.com/robfig/cron/v3"
)

// Add adds an entry to c that runs fn for every tick of spec that this instance
// claims. ctx ends the runs: c.Stop waits for them and does not. The context of
// fn, and what becomes of ticks, are those of [cron.Job]; ticks that were missed before
// are made up for as soon as the scheduler runs, by an entry of its own that is then
// gone.
//
// "@every" counts from the start of the scheduler, so no two instances would mean
// the same times by it; here its ticks are those of cron.Every.
func Add(ctx context.Context, c *robfig.Cron, spec string, job *cron.Job, fn func(ctx context.Context) error) (robfig.EntryID, error) {
	schedule, err := parse(c, spec)
	if err != nil {
		return 0, err
	}
	due, err := cronhook.NewDue(job, schedule)
	if err != nil {
		return 0, err
	}
	e := &entry{ctx: ctx, fn: fn, in: c.Location(), due: due}
	if due.CatchUp() > 0 {
		e.atStart(c)
	}
	return c.Schedule(schedule, e), nil
}

// atStart has c run e once when it starts, or now if it runs.
func (e *entry) atStart(c *robfig.Cron) {
	id := make(chan robfig.EntryID, 1)
	id <- c.Schedule(&first{}, robfig.FuncJob(func() {
		e.Run()
		c.Remove(<-id)
	}))
}

// first is a schedule with one tick: at once.
type first struct{ over bool }

// Next is called from one goroutine, that of the scheduler or before it starts.
func (f *first) Next(t time.Time) time.Time {
	if f.over {
		return time.Time{}
	}
	f.over = true
	return t
}

// parse has c's parser, which is its own, make a schedule of spec.
func parse(c *robfig.Cron, spec string) (cron.Schedule, error) {
	id, err := c.AddFunc(spec, func() {})
	if err != nil {
		return nil, err
	}
	defer c.Remove(id)
	schedule := c.Entry(id).Schedule
	if every, ok := schedule.(robfig.ConstantDelaySchedule); ok {
		return cron.Every(every.Delay), nil
	}
	return schedule, nil
}

// Wrapper makes jobs that are run once per tick of schedule, which must be the
// schedule of their entry, and not "@every": use cron.Every. The zone in is that
// of the scheduler (Cron.Location). Wrapped jobs have no context: they do not
// learn that they lost their lock. Put it first into the chain, and use one for
// each job: its name is that of the lock. Nothing runs a wrapped job when the
// scheduler starts, so job.CatchUp is a fencelock.ErrInvalid.
func Wrapper(ctx context.Context, job *cron.Job, schedule robfig.Schedule, in *time.Location) (robfig.JobWrapper, error) {
	if every, ok := schedule.(robfig.ConstantDelaySchedule); ok {
		return nil, fmt.Errorf("%w: instances share no ticks of @every %v: use cron.Every", fencelock.ErrInvalid, every.Delay)
	}
	due, err := cronhook.NewDue(job, schedule)
	if err != nil {
		return nil, err
	}
	if due.CatchUp() > 0 {
		return nil, fmt.Errorf("%w: %q: CatchUp needs robfigcron.Add", fencelock.ErrInvalid, job.Name())
	}
	return func(inner robfig.Job) robfig.Job {
		fn := func(context.Context) error { inner.Run(); return nil }
		return &entry{ctx: ctx, fn: fn, in: in, due: due}
	}, nil
}

// entry is the job that the scheduler knows.
type entry struct {
	ctx context.Context // of the runs
	fn  func(ctx context.Context) error
	in  *time.Location
	due cronhook.Due
}

// Run is called when the scheduler wakes up. It does not say for which time, and
// its clock has gone on since; the schedule knows.
func (e *entry) Run() {
	_ = e.due.TickAll(e.ctx, e.due.Take(time.Now().In(e.in)), e.fn) // reported by Config.OnTick and Config.Logger
}
