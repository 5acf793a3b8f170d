package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// turns takes and releases one name very often. Neither the cost of a turn nor what the server stores
// for the name may grow with the number of earlier turns.
func turns(a *arena, s settings) ([]row, error) {
	c, err := openOursOnPostgres(a.home)
	if err != nil {
		return nil, err
	}
	defer c.close()
	took := make([]float64, or(s, 100_000, 5_000))
	for i := range took {
		begun := time.Now()
		l, err := c.acquire(context.Background(), "turns")
		if err == nil {
			err = l.release()
		}
		if err != nil {
			return nil, err
		}
		took[i] = time.Since(begun).Seconds()
	}
	fifth := len(took) / 5
	first, last := median(took[:fifth]), median(took[len(took)-fifth:])
	var pages float64
	err = a.server.(*postgresServer).conn.QueryRow(context.Background(), `SELECT pg_relation_size('fencelock.held') / 8192.0`).Scan(&pages)
	if err != nil {
		return nil, err
	}
	grown := row{what: fmt.Sprintf("%d turns of one name: the last fifth to the first", len(took)), places: 2,
		values: map[string]float64{ours: last / first}, bars: []bar{noMore(1.3)}}
	stored := row{what: "... pages of the table of holders", values: map[string]float64{ours: pages}, bars: []bar{noMore(50)}}
	return []row{grown, stored}, nil
}

// postgresList measures what a List of very many held locks takes.
func postgresList(a *arena, s settings) ([]row, error) {
	c, err := openOursOnPostgres(a.home)
	if err != nil {
		return nil, err
	}
	defer c.close()
	n := or(s, 10_000, 1_000)
	err = parallelDo(n, func(i int) error {
		_, err := c.acquire(context.Background(), fmt.Sprint("list-", i)) // until the client closes
		return err
	})
	if err != nil {
		return nil, err
	}
	took := make([]float64, or(s, 25, 5))
	for i := range took {
		begun := time.Now()
		got, err := c.(ourClient).locks.List(context.Background(), "list-")
		if err != nil || len(got) != n {
			return nil, fmt.Errorf("listed %d of %d: %w", len(got), n, err)
		}
		took[i] = time.Since(begun).Seconds()
	}
	return []row{{what: fmt.Sprintf("List of %d held locks", n), unit: "s", values: map[string]float64{ours: median(took)}, bars: []bar{noMore(0.15)}}}, nil
}

// median returns the middle one of some numbers.
func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
