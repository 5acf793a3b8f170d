package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/ratelimit"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/rueidis"
)

// ratesSuite is about package ratelimit.
var ratesSuite = suite{
	name:  "rates",
	title: "Redis: rates",
	notes: "Each operation asks whether one more event of a key may happen. `bare` is a counter with an expiry\n" +
		"(INCR and PEXPIRE in one script) that limits nothing. fencelock and redis_rate both use the\n" +
		"generic cell rate algorithm; redis_rate computes in fractions of seconds.\n",
	contestants: []contestant{
		{name: bare, open: openBareRate},
		{name: ours, open: openOurRate},
		{name: onGoredis, open: openOurRateOnGoredis},
		{name: "redis_rate", open: openRedisRate},
	},
	measures: []measure{{"granted", granted}, {"refused", refused}, {"granted-parallel", grantedParallel}},
	per:      500,
	start:    startRedis,
}

// The limits that everybody keeps: one that grants everything, and one that is used up at
// once.
const (
	generous = 1_000_000 // a second, all at once
	scarce   = 1         // an hour
)

// What we may take of what redis_rate takes: alone, where both wait for the network most
// of the time, and with many at once.
var (
	whenAlone = atMost("redis_rate", 1)
	whenMany  = atMost("redis_rate", 1/1.2)
)

// granted measures a key with room.
func granted(a *arena, s settings) ([]row, error) {
	const asks = 25
	rounds, err := timed(a, s, or(s, a.per, 100)/asks, func(o opened) error { return loop(o, "granted", asks) }, asks)
	return rounds.rows("one event, granted, uncontended", whenAlone), err
}

// refused measures a key without room.
func refused(a *arena, s settings) ([]row, error) {
	const asks = 25
	rounds, err := timed(a, s, or(s, a.per, 100)/asks, func(o opened) error { return loop(o, scarceKey, asks) }, asks)
	return rounds.rows("one event, refused, uncontended", whenAlone), err
}

// grantedParallel measures 256 goroutines of one process, with a key each.
func grantedParallel(a *arena, s settings) ([]row, error) {
	const goroutines, asks = 256, 3
	rounds, err := timed(a, s, or(s, 5, 3), func(o opened) error {
		var all sync.WaitGroup
		errs := make(chan error, goroutines)
		for i := range goroutines {
			all.Go(func() { errs <- loop(o, fmt.Sprint("granted-", i), asks) })
		}
		all.Wait()
		var failed error
		for range goroutines {
			failed = errors.Join(failed, <-errs)
		}
		return failed
	}, goroutines*asks)
	return rounds.rows("one event, granted, 256 goroutines with a key each", whenMany), err
}

// scarceKey is the key that has the scarce limit.
const scarceKey = "refused"

// asked is the answer to one question, as a lock that needs no release.
type asked struct{}

func (asked) release() error { return nil }
func (asked) err() error     { return nil }

// ourRate asks package ratelimit.
type ourRate struct{ generous, scarce *ratelimit.Limiter }

func openOurRate(p *process) (client, error) {
	rdb, err := p.rueidisClient()
	if err != nil {
		return nil, err
	}
	return newOurRate(redislock.New(rdb, nil), "rueidis"), nil
}

func openOurRateOnGoredis(p *process) (client, error) {
	rdb, err := p.goredisClient()
	if err != nil {
		return nil, err
	}
	return newOurRate(goredis.New(rdb, nil), "goredis"), nil
}

func newOurRate(engine *redislock.Engine, name string) ourRate {
	patient := &ratelimit.Config{Timeout: time.Minute}
	return ourRate{
		ratelimit.New(engine, name, ratelimit.PerSecond(generous), patient),
		ratelimit.New(engine, name, ratelimit.PerHour(scarce), patient),
	}
}

func (c ourRate) acquire(ctx context.Context, name string) (lock, error) {
	l := c.generous
	if name == scarceKey {
		l = c.scarce
	}
	_, err := l.Allow(ctx, name)
	return asked{}, err
}

func (ourRate) close() {}

// peerRate asks redis_rate.
type peerRate struct{ limiter *redis_rate.Limiter }

func openRedisRate(p *process) (client, error) {
	rdb, err := p.goredisClient()
	return peerRate{redis_rate.NewLimiter(rdb)}, err
}

func (c peerRate) acquire(ctx context.Context, name string) (lock, error) {
	limit := redis_rate.PerSecond(generous)
	if name == scarceKey {
		limit = redis_rate.PerHour(scarce)
	}
	_, err := c.limiter.Allow(ctx, name, limit)
	return asked{}, err
}

func (peerRate) close() {}

// bareRate counts, and limits nothing.
type bareRate struct{ rdb rueidis.Client }

var countScript = rueidis.NewLuaScript(`local n = redis.call('INCR', KEYS[1]) redis.call('PEXPIRE', KEYS[1], 1000) return n`)

func openBareRate(p *process) (client, error) {
	rdb, err := p.rueidisClient()
	return bareRate{rdb}, err
}

func (c bareRate) acquire(ctx context.Context, name string) (lock, error) {
	return asked{}, countScript.Exec(ctx, c.rdb, []string{"bare:" + name}, nil).Error()
}

func (bareRate) close() {}
