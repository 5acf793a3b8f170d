package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// links is how many processes wait in a chain.
const links = 12

// chain measures how fast a lock goes through a queue of processes, and whether they get it
// in the order in which they came.
func chain(a *arena, s settings) ([]row, error) {
	var all []*line
	defer func() {
		for _, q := range all {
			q.close()
		}
	}()
	for _, c := range a.libraries() {
		q, err := a.line(c)
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	name := func(q *line) string { return q.name }
	if _, err := interleave(1, all, name, (*line).pass); err != nil { // warm up
		return nil, err
	}
	for _, q := range all {
		q.inversions = 0
	}
	rounds, err := interleave(or(s, s.rounds, 1), all, name, (*line).pass)
	if err != nil {
		return nil, err
	}
	order := row{what: "... waiters that a later one overtook", values: map[string]float64{}, bars: []bar{noMore(0)}}
	for _, q := range all {
		order.values[q.name] = float64(q.inversions)
	}
	return []row{{what: fmt.Sprintf("a turn in a chain of %d waiting processes", links), unit: "s", values: medians(rounds), ratios: ratios(rounds, minimal),
		rounds: rounds, base: minimal, bars: []bar{atMost(minimal, 1.3)}}, order}, nil
}

// line is a holder in this process and waiters in others.
type line struct {
	name       string
	holder     client
	waiters    []*worker
	inversions int
}

func (a *arena) line(c contestant) (*line, error) {
	holder, err := c.open(a.home)
	if err != nil {
		return nil, err
	}
	q := &line{name: c.name, holder: holder}
	for range links {
		w, err := a.hire(order{Contestant: c.name, Job: "wait"})
		if err != nil {
			q.close()
			return nil, err
		}
		q.waiters = append(q.waiters, w)
	}
	return q, nil
}

func (q *line) close() {
	dismissAll(q.waiters)
	q.holder.close()
}

// pass lets the lock go through the chain once, and returns how many seconds a turn took.
func (q *line) pass() (float64, error) {
	l, err := q.holder.acquire(context.Background(), "chain")
	if err != nil {
		return 0, err
	}
	for _, w := range q.waiters {
		if err := w.tell("chain"); err != nil {
			return 0, err
		}
		time.Sleep(100 * time.Millisecond) // until it waits, also when the disk is slow for a moment
	}
	sent := time.Now()
	if err := l.release(); err != nil {
		return 0, err
	}
	times := make([]time.Time, links)
	for i, w := range q.waiters {
		if err := w.hear(&times[i]); err != nil {
			return 0, fmt.Errorf("waiter %d did not get it: %w", i, err)
		}
		if i > 0 && times[i].Before(times[i-1]) {
			q.inversions++
		}
	}
	return slices.MaxFunc(times, time.Time.Compare).Sub(sent).Seconds() / links, nil
}
