// Package robfigcron runs each tick of a robfig/cron entry on one of many instances only. Every
// instance adds the same entries, and the first instance that claims a tick runs it; see package
// cron.
//
//	c := cron.New()
//	_, err := robfigcron.Add(ctx, c, "0 3 * * *", job, bill)
//
// Most programs should use [Add]. Use [Wrapper] for entries that are added in another way.
package robfigcron

import (
	"context"
	"fmt"
	"time"
	"weak"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	robfig "github.com/robfig/cron/v3"
)

// Add adds an entry to c that runs fn for every tick of spec that this instance claims. Cancel ctx
// to end the runs: c.Stop does not end them, but the context that it returns waits for them. The
// context of fn and the handling of ticks are those of [cron.Job]. With Config.CatchUp, missed
// ticks are run as soon as the scheduler runs, by an extra entry that is then removed.
//
// robfig/cron counts "@every" from the start of the scheduler, which differs between instances.
// Here its ticks are those of cron.Every.
func Add(ctx context.Context, c *robfig.Cron, spec string, job *cron.Job, fn func(ctx context.Context) error) (robfig.EntryID, error) {
	schedule, err := parse(c, spec)
	if err != nil {
		return 0, err
	}
	due, err := job.Due(schedule)
	if err != nil {
		return 0, err
	}
	e := &entry{ctx: ctx, fn: fn, in: c.Location(), due: due}
	if due.CatchUp() > 0 {
		e.atStart(c)
	}
	id := c.Schedule(schedule, e)
	checkClock(ctx, weak.Make(c), id)
	return id, nil
}

// noEntry is no entry's ID.
const noEntry robfig.EntryID = 0

// checkClock makes c read the wall clock at intervals, until ctx ends, the entry is removed, or the
// program has stopped c and dropped it. c waits with one timer for its next entry. If the clock is
// set forward or the host is suspended, that timer is late by the same time. c calculates it again
// when it removes an entry, even if the entry does not exist.
func checkClock(ctx context.Context, to weak.Pointer[robfig.Cron], id robfig.EntryID) {
	time.AfterFunc(cron.ClockCheck, func() {
		c := to.Value()
		if c == nil || ctx.Err() != nil || id != noEntry && !c.Entry(id).Valid() {
			return
		}
		c.Remove(noEntry)
		checkClock(ctx, to, id)
	})
}

// atStart lets c run e once: when c starts, or now if it is already running.
func (e *entry) atStart(c *robfig.Cron) {
	id := make(chan robfig.EntryID, 1)
	id <- c.Schedule(&first{}, robfig.FuncJob(func() {
		e.Run()
		c.Remove(<-id)
	}))
}

// first is a schedule with one tick: at once.
type first struct{ over bool }

// Next is called from one goroutine at a time, so it needs no mutex.
func (f *first) Next(t time.Time) time.Time {
	if f.over {
		return time.Time{}
	}
	f.over = true
	return t
}

// parse makes a schedule of spec with the parser of c, which is not accessible in another way.
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

// Wrapper returns a wrapper for jobs that are run once per tick of schedule. schedule must be that
// of the entry, and c its scheduler. For "@every" use cron.Every, both here and for the entry. Cancel
// ctx to end the runs.
//
// Put the wrapper first in the chain, and use one for each job: the name of job is the name of the
// lock. A wrapped job has no context, so it is not notified if its lock is lost. Nothing calls it
// when the scheduler starts, so Config.CatchUp is a fencelock.ErrInvalid here.
func Wrapper(ctx context.Context, c *robfig.Cron, job *cron.Job, schedule robfig.Schedule) (robfig.JobWrapper, error) {
	if every, ok := schedule.(robfig.ConstantDelaySchedule); ok {
		return nil, fmt.Errorf("%w: the ticks of @every %v differ between instances: use cron.Every", fencelock.ErrInvalid, every.Delay)
	}
	due, err := job.Due(schedule)
	if err != nil {
		return nil, err
	}
	if due.CatchUp() > 0 {
		return nil, fmt.Errorf("%w: %q: Wrapper does not support CatchUp: use robfigcron.Add", fencelock.ErrInvalid, job.Name())
	}
	checkClock(ctx, weak.Make(c), noEntry)
	return func(inner robfig.Job) robfig.Job {
		fn := func(context.Context) error { inner.Run(); return nil }
		return &entry{ctx: ctx, fn: fn, in: c.Location(), due: due}
	}, nil
}

// entry is the job that robfig/cron calls.
type entry struct {
	ctx context.Context // the context of its runs
	fn  func(ctx context.Context) error
	in  *time.Location
	due *cron.Due
}

// Run is called when the scheduler wakes up. robfig/cron does not pass the scheduled time, so Take
// finds it by the schedule.
func (e *entry) Run() {
	_ = e.due.TickAll(e.ctx, e.due.Take(time.Now().In(e.in)), e.fn) // reported to Config.OnTick and Config.Logger
}
