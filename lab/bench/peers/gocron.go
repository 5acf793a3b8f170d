package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/cron/schedulers/gocronlock"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
)

const (
	gocronPeriod    = time.Second
	gocronTicks     = 5
	gocronInstances = 3
	gocronSkew      = 40 * time.Millisecond // between the clocks of two instances
)

// gocronFastJob schedules a job of a few microseconds on three instances whose clocks differ, and
// counts its runs.
func gocronFastJob(b *bed) []finding {
	addr := redistest.StartRedis(b).Addr()
	theirs := redsyncClient(newRedsync(spec{Addrs: []string{addr}}, false))
	b.Cleanup(theirs.close)
	peer := b.runs(func(run func()) (any, []gocron.SchedulerOption) {
		return run, []gocron.SchedulerOption{gocron.WithDistributedLocker(redsyncLocker{theirs.locks})}
	})
	ours := b.client(spec{Kind: "fencelock, Redis", Addrs: []string{addr}, TTL: 5 * time.Second}).(fencelockClient)
	own := b.runs(func(run func()) (any, []gocron.SchedulerOption) {
		task, err := gocronlock.Task(cron.New(ours.locks, "job", nil), cron.Every(gocronPeriod), func(context.Context) error {
			run()
			return nil
		})
		b.must(err)
		return task, nil
	})
	return []finding{
		{subject: "gocron with a redsync Locker", shows: peer > gocronTicks, wanted: true,
			seen: fmt.Sprintf("%d runs of %d ticks", peer, gocronTicks)},
		{subject: "gocron with gocronlock", shows: own > gocronTicks,
			seen: fmt.Sprintf("%d runs of %d ticks", own, gocronTicks)},
	}
}

// runs schedules a job on all instances for some ticks, and returns how often it ran.
func (b *bed) runs(instance func(run func()) (task any, options []gocron.SchedulerOption)) int64 {
	var count atomic.Int64
	start := time.Now().Truncate(gocronPeriod).Add(2 * gocronPeriod)
	var all []gocron.Scheduler
	for i := range gocronInstances {
		task, options := instance(func() { count.Add(1) })
		s, err := gocron.NewScheduler(options...)
		b.must(err)
		_, err = s.NewJob(gocron.DurationJob(gocronPeriod), gocron.NewTask(task), gocron.WithName("job"),
			gocron.WithStartAt(gocron.WithStartDateTime(start.Add(time.Duration(i)*gocronSkew))))
		b.must(err)
		s.Start()
		all = append(all, s)
	}
	time.Sleep(time.Until(start.Add(gocronTicks*gocronPeriod - gocronPeriod/2)))
	for _, s := range all {
		b.must(s.Shutdown())
	}
	return count.Load()
}

// redsyncLocker locks a job for as long as it runs, as gocron-redis-lock does.
type redsyncLocker struct{ locks *redsync.Redsync }

func (l redsyncLocker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	m := l.locks.NewMutex(key, redsync.WithTries(1))
	return redsyncJobLock{m}, m.LockContext(ctx)
}

type redsyncJobLock struct{ mutex *redsync.Mutex }

func (l redsyncJobLock) Unlock(ctx context.Context) error {
	_, err := l.mutex.UnlockContext(ctx)
	return err
}
