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

// compared makes a row of what every contestant took in every round, in seconds.
func compared(what string, rounds map[string][]float64, bars ...bar) row {
	return row{what: what, unit: "s", values: medians(rounds), ratios: ratios(rounds, bare), rounds: rounds, base: bare, bars: bars}
}

// ratios returns, for each contestant, the median of what its rounds are to
// those of base. Each round is compared with its own neighbour, so a slow moment
// of the machine falls out.
func ratios(rounds map[string][]float64, base string) map[string]float64 {
	out := map[string]float64{}
	for name, values := range rounds {
		var each []float64
		for i, v := range values[:min(len(values), len(rounds[base]))] { // none if base does not take part
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

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
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
	const pairs = 25
	rounds, err := timed(a, s, or(s, a.per, 100)/pairs, func(o opened) error { return loop(o, "alone", pairs) }, pairs)
	return rounds.rows("acquire and release, uncontended", a.bars["alone"]...), err
}

// parallel measures 256 goroutines of one process, with a name each.
func parallel(a *arena, s settings) ([]row, error) {
	const goroutines, pairs = 256, 3
	rounds, err := timed(a, s, or(s, 5, 3), func(o opened) error {
		var all sync.WaitGroup
		errs := make(chan error, goroutines)
		for i := range goroutines {
			all.Go(func() { errs <- loop(o, fmt.Sprint("parallel-", i), pairs) })
		}
		all.Wait()
		for range goroutines {
			if err := <-errs; err != nil {
				return err
			}
		}
		return nil
	}, goroutines*pairs)
	return rounds.rows("acquire and release, 256 goroutines with a name each", a.bars["parallel"]...), err
}

// timings are what an operation took, in seconds, by contestant and round.
type timings struct{ wall, client, server map[string][]float64 }

// rows are a row of the wall clock, and one each of the CPU times.
func (t timings) rows(what string, bars ...bar) []row {
	cpu := func(what string, rounds map[string][]float64) row {
		r := row{what: what, places: 1, values: medians(rounds)}
		for name := range r.values {
			r.values[name] *= 1e6
		}
		return r
	}
	rows := []row{compared(what, t.wall, bars...), cpu("... client CPU, us", t.client)}
	if t.server != nil {
		rows = append(rows, cpu("... server CPU, us", t.server))
	}
	return rows
}

// timed measures what one of the n operations in a turn takes. Each round has several short
// turns of every contestant: the machine is faster for some milliseconds and slower for
// others, and so is for all of them.
func timed(a *arena, s settings, turns int, turn func(opened) error, n int) (timings, error) {
	all, shut, err := openAll(a.contestants, a.home)
	if err != nil {
		return timings{}, err
	}
	defer shut()
	name := func(o opened) string { return o.name }
	got := timings{wall: map[string][]float64{}, client: map[string][]float64{}}
	for round := range 1 + s.rounds {
		runtime.GC()
		members := family(a.server)
		client, server := map[string][]float64{}, map[string][]float64{}
		wall, err := interleave(turns, all, name, func(o opened) (float64, error) {
			own, theirs, begun := cpuTime(), cpuOf(members), time.Now()
			err := turn(o)
			took := time.Since(begun)
			client[o.name] = append(client[o.name], (cpuTime()-own).Seconds()/float64(n))
			server[o.name] = append(server[o.name], (cpuOf(members)-theirs).Seconds()/float64(n))
			return took.Seconds() / float64(n), err
		})
		if err != nil {
			return timings{}, err
		}
		if round == 0 { // to warm up
			continue
		}
		if members != nil && got.server == nil {
			got.server = map[string][]float64{}
		}
		for _, o := range all {
			got.wall[o.name] = append(got.wall[o.name], mean(wall[o.name]))
			got.client[o.name] = append(got.client[o.name], mean(client[o.name]))
			if members != nil {
				got.server[o.name] = append(got.server[o.name], mean(server[o.name]))
			}
		}
	}
	return got, nil
}
