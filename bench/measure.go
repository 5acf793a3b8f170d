package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// interleave gives every contestant a turn in each of n rounds, in an order
// that rotates, so that whatever else the machine does hits all of them alike.
// It returns what turn returned, by contestant and round.
func interleave[C any](n int, contestants []C, name func(C) string, turn func(C) (float64, error)) (map[string][]float64, error) {
	got := map[string][]float64{}
	for round := range n {
		for i := range contestants {
			c := contestants[(round+i)%len(contestants)]
			value, err := turn(c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name(c), err)
			}
			got[name(c)] = append(got[name(c)], value)
		}
	}
	return got, nil
}

// medians returns the median of each contestant's rounds.
func medians(rounds map[string][]float64) map[string]float64 {
	out := map[string]float64{}
	for name, values := range rounds {
		out[name] = percentile(values, 50)
	}
	return out
}

// ratios returns, for each contestant, the median of what its rounds are to
// those of base. Each round is compared with its own neighbour, so a slow moment
// of the machine falls out.
func ratios(rounds map[string][]float64, base string) map[string]float64 {
	out := map[string]float64{}
	for name, values := range rounds {
		var each []float64
		for i, v := range values {
			each = append(each, v/rounds[base][i])
		}
		out[name] = percentile(each, 50)
	}
	return out
}

// percentile returns the smallest value that p percent of the values do not exceed.
func percentile(values []float64, p int) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*p+99)/100-1]
}

// jain is the fairness index of Jain, Chiu and Hawe (1984): 1 when all got the
// same, 1/n when one got everything.
func jain(turns []int) float64 {
	sum, squares := 0.0, 0.0
	for _, n := range turns {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(turns)) * squares)
}

// loop acquires and releases name n times.
func loop(c client, name string, n int) error {
	for range n {
		l, err := c.acquire(context.Background(), name)
		if err != nil {
			return err
		}
		if err := l.release(); err != nil {
			return err
		}
	}
	return nil
}

// alone measures acquire and release with nobody else there.
func alone(a *arena, s settings) ([]row, error) {
	per := or(s, a.per, 100)
	rounds, err := timed(a, s, func(c client) error { return loop(c, "alone", per) }, per)
	return []row{{
		what: "acquire and release, nobody else there", unit: "s", values: medians(rounds), ratios: ratios(rounds, bare), base: bare,
		bars: a.bars["alone"],
	}}, err
}

// parallel measures 256 goroutines of one process, with a name each.
func parallel(a *arena, s settings) ([]row, error) {
	const goroutines = 256
	per := or(s, 15, 10)
	rounds, err := timed(a, s, func(c client) error {
		var all sync.WaitGroup
		errs := make(chan error, goroutines)
		for i := range goroutines {
			all.Go(func() { errs <- loop(c, fmt.Sprint("parallel-", i), per) })
		}
		all.Wait()
		for range goroutines {
			if err := <-errs; err != nil {
				return err
			}
		}
		return nil
	}, goroutines*per)
	return []row{{
		what: "acquire and release, 256 goroutines with a name each", unit: "s", values: medians(rounds), ratios: ratios(rounds, bare), base: bare,
		bars: []bar{atMost(bestPeer, 1)},
	}}, err
}

// timed measures what one of the n operations in turn takes, in seconds.
func timed(a *arena, s settings, turn func(client) error, n int) (map[string][]float64, error) {
	all, shut, err := openAll(a.contestants, a.home)
	if err != nil {
		return nil, err
	}
	defer shut()
	measured := func(o opened) (float64, error) {
		runtime.GC() // nobody pays for another's garbage
		begun := time.Now()
		err := turn(o.client)
		return time.Since(begun).Seconds() / float64(n), err
	}
	name := func(o opened) string { return o.name }
	if _, err := interleave(1, all, name, measured); err != nil { // warm up
		return nil, err
	}
	return interleave(s.rounds, all, name, measured)
}
