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
	title: "Redis: one contended name",
	notes: "Goroutines acquire and release one name and do nothing while they hold it. \"8 x 8\" means 8 clients\n" +
		"with 8 goroutines each. Each client has its own connections; either one process has all clients,\n" +
		"or each process has one. `minimal` is the shortest code that has tokens, a lease and a queue, and\n" +
		"handles no dead clients, cancelled waits or lost messages. redislock and redsync poll. So the\n" +
		"process that released the lock usually acquires it again, and some contenders hardly get a turn.\n" +
		"CPU times are in microseconds per acquisition, over the clients of all processes.\n",
	pictures: "![turns of 64 contenders for one lock, for each library](../../docs/pictures/turns.svg)\n\n",
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
