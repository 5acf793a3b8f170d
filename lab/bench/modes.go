package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock"
)

// modesSuite is what other kinds of our locks cost beside the exclusive one, and
// what those pay who look at the locks of others.
var modesSuite = suite{
	name:   "modes",
	inside: true,
	title:  "Redis: shared locks and listings",
	notes: "`fencelock` is an exclusive lock, `shared` a shared one, `permit` a shared one with a limit, `weight` one that counts for two, and\n" +
		"`on go-redis` an exclusive one on a go-redis client. All but one of the holders are there all the time, and one comes and goes. List and\n" +
		"watch are of 1,000 names with a holder each; watch asks twice a second, and nothing happens.\n",
	contestants: []contestant{
		{name: ours, open: openOurs, renews: true},
		{name: "shared", open: openMode(fencelock.Options{Shared: true}), renews: true},
		{name: "permit", open: openMode(fencelock.Options{Shared: true, Limit: 2000}), renews: true},
		{name: "weight", open: openMode(fencelock.Options{Shared: true, Limit: 4000, Weight: 2}), renews: true},
		{name: onGoredis, open: openOursOnGoredis, renews: true},
	},
	measures: []measure{{"holders", holders}, {"views", views}},
	start:    startRedis,
}

func openMode(o fencelock.Options) func(*process) (client, error) {
	return func(p *process) (client, error) {
		rdb, err := p.rueidisClient()
		if err != nil {
			return nil, err
		}
		engine := redislock.New(rdb, nil)
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl}).With(o)
		return ourClient{locks, func() { _ = engine.Close() }}, nil
	}
}

// holders measures acquire and release beside holders who stay.
func holders(a *arena, s settings) ([]row, error) {
	var rows []row
	for _, n := range []int{1, 10, 1000} {
		name := fmt.Sprint("holders-", n)
		var stay []lock
		for _, c := range a.contestants {
			if c.name == ours || c.name == onGoredis {
				continue // they let nobody else in
			}
			cl, err := c.open(a.home)
			if err != nil {
				return nil, err
			}
			defer cl.close()
			some := make([]lock, n-1)
			err = parallelDo(len(some), func(i int) (err error) {
				some[i], err = cl.acquire(context.Background(), c.name+name)
				return err
			})
			if err != nil {
				return nil, err
			}
			stay = append(stay, some...)
		}
		const pairs = 25
		rounds, err := timed(a, s, or(s, 20, 4), func(o opened) error { return loop(o.client, o.name+name, pairs) }, pairs)
		if err != nil {
			return nil, err
		}
		r := row{what: fmt.Sprintf("acquire and release, %d holders", n), unit: "s", values: medians(rounds.wall), ratios: ratios(rounds.wall, ours), rounds: rounds.wall, base: ours}
		for _, c := range []string{"shared", "permit"} {
			r.bars = append(r.bars, noMoreThan(c, 1.5))
		}
		rows = append(rows, r)
		if err := parallelDo(len(stay), func(i int) error { return stay[i].release() }); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// noMoreThan wants another contestant to take no more than factor times what we do.
func noMoreThan(name string, factor float64) bar {
	return bar{test: func(r row, _ string) (string, bool) {
		return fmt.Sprintf("%s <= %.4g (%.3g)", name, factor, r.ratios[name]), r.ratios[name] <= factor
	}}
}

// views measures what List, and a watch while nothing happens, cost the server.
func views(a *arena, s settings) ([]row, error) {
	c, err := openOurs(a.home)
	if err != nil {
		return nil, err
	}
	locks := c.(ourClient).locks
	held := make([]lock, 1000)
	err = parallelDo(len(held), func(i int) (err error) {
		held[i], err = c.acquire(context.Background(), fmt.Sprint("view-", i))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = parallelDo(len(held), func(i int) error { return held[i].release() }) }()
	prefix, times := "view-", or(s, 100, 10)
	// Locks are indexed when they are a moment old.
	for got, late := 0, time.Now().Add(time.Minute); got < len(held); {
		all, err := locks.List(context.Background(), prefix)
		if got = len(all); err != nil || time.Now().After(late) {
			return nil, fmt.Errorf("%d of %d locks are listed: %w", got, len(held), cmp.Or(err, context.DeadlineExceeded))
		}
	}
	list, err := a.during(func() error {
		for range times {
			if got, err := locks.List(context.Background(), prefix); err != nil || len(got) != len(held) {
				return fmt.Errorf("listed %d: %w", len(got), err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	length := or(s, 8*time.Second, 2*time.Second)
	watch, err := a.during(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), length)
		defer cancel()
		for _, err := range locks.Watch(ctx, prefix) {
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	one := func(what string, value float64) row {
		return row{what: what, places: 1, values: map[string]float64{ours: value}}
	}
	return []row{
		one("List of 1000 names: server CPU, ms", list.cpu.Seconds()*1000/float64(times)),
		one("... commands, in scripts too", float64(list.total)/float64(times)),
		one("idle watch of 1000 names: server CPU, % of one core", 100*watch.cpu.Seconds()/length.Seconds()),
		one("... commands per second, in scripts too", float64(watch.total)/length.Seconds()),
	}, nil
}

// during returns what the server counts while fn runs.
func (a *arena) during(fn func() error) (counters, error) {
	before, err := a.counters()
	if err != nil {
		return counters{}, err
	}
	if err := fn(); err != nil {
		return counters{}, err
	}
	after, err := a.counters()
	return after.since(before), err
}
