package main

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/pglock"
)

// postgresModesSuite is what other kinds of our locks cost on PostgreSQL, and those of a
// process that holds many.
var postgresModesSuite = suite{
	name:   "postgres-modes",
	inside: true,
	title:  "PostgreSQL: modes, and many locks held",
	notes: "`bare` and `minimal` are those of the section before. `fencelock` is an exclusive lock, `shared` a shared one, `permit` a shared one\n" +
		"with a limit, and `beside 8000` an exclusive one of an engine that holds 8,000 others. `bare beside` has 8,000 on its connection: at the end\n" +
		"of each transaction the server looks at every lock that its session has.\n",
	contestants: []contestant{
		{name: bare, open: openAdvisory},
		{name: minimal, open: openMinimalRows, renews: true},
		{name: ours, open: openOursOnPostgres, renews: true},
		{name: "shared", open: openPostgresMode(fencelock.Options{Shared: true}), renews: true},
		{name: "permit", open: openPostgresMode(fencelock.Options{Shared: true, Limit: 2000}), renews: true},
		{name: bareBeside, open: openBareBeside},
		{name: "beside 8000", open: openBeside, renews: true},
	},
	measures: []measure{{"turns", turns}, {"modes", modes}, {"list", postgresList}}, // turns first, while the table is small
	per:      250,
	start:    startPostgres,
}

// modes measures acquire and release in each mode, with nobody else there.
func modes(a *arena, s settings) ([]row, error) {
	const pairs = 25
	rounds, err := timed(a, s, or(s, a.per, 100)/pairs, func(o opened) error { return loop(o, "mode-"+o.name, pairs) }, pairs)
	if err != nil {
		return nil, err
	}
	r := compared("acquire and release, uncontended", rounds.wall, noMoreThan("shared", 1.8))
	beside := row{what: "... beside 8,000 locks held, to the bare statements there", places: 2, bars: []bar{noMore(1.25)},
		values: map[string]float64{ours: ratios(rounds.wall, bareBeside)["beside 8000"]}}
	return []row{r, beside}, nil
}

func openPostgresMode(o fencelock.Options) func(*process) (client, error) {
	return func(p *process) (client, error) {
		pool, err := p.pgxPool(4, "on")
		if err != nil {
			return nil, err
		}
		engine := pglock.New(pool, nil)
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl}).With(o)
		return ourClient{locks, func() { _ = engine.Close() }}, nil
	}
}

// bareBeside is bare on a connection that has 8,000 locks.
const bareBeside = "bare beside"

func openBareBeside(p *process) (client, error) {
	c, err := openAdvisory(p)
	if err != nil {
		return nil, err
	}
	_, err = c.(advisoryClient).conn.Exec(context.Background(), `SELECT count(pg_advisory_lock(i)) FROM generate_series(1, 8000) i`)
	return c, err
}

// openBeside opens a client of ours that holds 8,000 locks.
func openBeside(p *process) (client, error) {
	c, err := openOursOnPostgres(p)
	if err != nil {
		return nil, err
	}
	err = parallelDo(8000, func(i int) error {
		_, err := c.acquire(context.Background(), fmt.Sprint("beside-", i)) // until the client closes
		return err
	})
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}
