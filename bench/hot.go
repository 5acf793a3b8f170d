package main

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock/goredis"
)

// minimal is the limit of the suite about a lock that everybody wants.
const minimal = "minimal"

// hotSuite is a lock that everybody wants, with no work done while it is held.
var hotSuite = suite{
	name:  "hot",
	title: "Redis: one name that everybody wants",
	notes: "Goroutines acquire and release one name, and do nothing while they hold it. 8 x 8 is 8 clients, with connections of their own, of 8\n" +
		"goroutines each; all clients are in one process, or each is in one of its own. `minimal` is the limit: the shortest scripts that let\n" +
		"waiters in in their order, with tokens and a lease, and without anything for clients that die, cancel or lose a message. redislock and\n" +
		"redsync poll, so that who has just released comes again before anybody else knows: the cost of a turn is that of a lock that is free,\n" +
		"and some of them hardly get a turn. CPU times are microseconds for each acquisition, those of clients of all processes together.\n",
	contestants: []contestant{
		{name: minimal, open: openMinimal},
		{name: ours, open: openOurs, renews: true},
		{name: onGoredis, open: openOursOnGoredis, renews: true},
		{name: "rueidislock", open: openRueidislock, renews: true},
		{name: "redislock", open: openRedislock},
		{name: "redsync", open: openRedsync, sends: []string{"set"}},
	},
	measures: []measure{{"2x1", hot(2, 1, 0.75)}, {"8x1", hot(8, 1, 1)}, {"8x8", hot(8, 8, 1)}},
	start:    startRedis,
}

// hot lets clients with goroutines each contend for one name, in one process and
// in one for each client. Factor is the bar to rueidislock.
func hot(clients, each int, factor float64) func(*arena, settings) ([]row, error) {
	return func(a *arena, s settings) (rows []row, err error) {
		for _, one := range []bool{true, false} {
			sh, where := shape{1, clients, each}, "one process"
			if !one {
				sh, where = shape{clients, 1, each}, fmt.Sprint(clients, " processes")
			}
			got, rates, err := a.brawls(s, sh, max(s.rounds/5, 1), or(s, time.Second, 400*time.Millisecond))
			if err != nil {
				return nil, err
			}
			rows = append(rows, row{what: fmt.Sprintf("%d x %d, %s: acquisitions per second", clients, each, where), values: medians(rates), rounds: rates,
				bars: []bar{timesAsMany("rueidislock", factor)}})
			rows = append(rows, a.fairness(got, "... ")...)
			rows = append(rows,
				a.middles(got, row{what: "... commands, in scripts too", places: 1}, func(b *brawl) float64 { return b.all / b.sum() }),
				a.middles(got, row{what: "... server CPU, us", places: 1}, func(b *brawl) float64 { return b.per(b.server) }),
				a.middles(got, row{what: "... client CPU, us", places: 1}, func(b *brawl) float64 { return b.per(b.own) }))
		}
		return rows, nil
	}
}

func openOursOnGoredis(p *process) (client, error) {
	rdb, err := p.goredisClient()
	if err != nil {
		return nil, err
	}
	engine := goredis.New(rdb, nil)
	return ourClient{fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl}), func() { _ = engine.Close() }}, nil
}
