package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/lab/picture"
)

// recorders measure what a picture shows, each on a server of its own.
var recorders = map[string]func(*arena, settings, string) (any, error){
	"handover": recordHandover,
	"turns":    recordTurns,
	"cost":     recordCost,
}

// drawnPeers are the contestants of pictures, and what their waiters do.
var drawnPeers = map[string]string{
	ours: "is pushed", "rueidislock": "is pushed", "redislock": "polls each 100 ms", "redsync": "polls each 50-250 ms",
}

// record measures what pictures show and stores it beside them. `make pictures` draws it.
func record(args []string) error {
	flags := flag.NewFlagSet("picture", flag.ExitOnError)
	only := flags.String("only", "handover,turns,cost", "what to measure, separated by commas")
	quick := flags.Bool("quick", false, "measure little of everything")
	docs := flags.String("docs", filepath.Join("..", "docs"), "the directory of the documentation")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := settings{rounds: 25, quick: *quick, log: logger(time.Now())}
	for name := range strings.SplitSeq(*only, ",") {
		measure, ok := recorders[name]
		if !ok {
			return fmt.Errorf("no picture %q", name)
		}
		a, err := newArena(hotSuite)
		if err != nil {
			return err
		}
		s.log("%s", name)
		data, err := measure(a, s, fmt.Sprintf("%s, %d cores, %s", a.server.version(), runtime.NumCPU(), time.Now().Format(time.DateOnly)))
		a.stop()
		if err == nil {
			err = picture.Store(*docs, name+".json", data)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// drawn keeps the contestants of pictures.
func drawn(all []contestant) []contestant {
	return slices.DeleteFunc(slices.Clone(all), func(c contestant) bool { return drawnPeers[c.name] == "" })
}

func namesOf(all []contestant) (names []string) {
	for _, c := range all {
		names = append(names, c.name)
	}
	return names
}

func recordHandover(a *arena, s settings, on string) (any, error) {
	some := drawn(a.contestants)
	var pairs []*pair
	defer func() {
		for _, p := range pairs {
			p.close()
		}
	}()
	for _, c := range some {
		p, err := a.pair(c)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, p)
	}
	name := func(p *pair) string { return p.name }
	if _, err := interleave(2, pairs, name, (*pair).pass); err != nil { // warm up
		return nil, err
	}
	took, err := interleave(or(s, 100, 20), pairs, name, (*pair).pass)
	for _, values := range took {
		for i, v := range values {
			values[i] = float64(int64(v*1e6)) / 1e6
		}
	}
	return picture.Handover{Measured: on + ". A dot is one hand-over", Order: namesOf(some), Notes: drawnPeers, Took: took}, err
}

func recordTurns(a *arena, s settings, on string) (any, error) {
	some, turns := drawn(a.contestants), map[string][]int{}
	length := or(s, 10*time.Second, 2*time.Second)
	for _, c := range some {
		b, err := a.brawl(c, shape{processes: 8, clients: 1, each: 8}, time.Second, length)
		if err != nil {
			return nil, err
		}
		turns[c.name] = b.turns
	}
	return picture.Turns{Measured: fmt.Sprintf("%s. 8 processes with 8 goroutines each, for %v", on, length), Order: namesOf(some), Turns: turns}, nil
}

func recordCost(a *arena, s settings, on string) (any, error) {
	var memory, cpu, renewals, waiting []picture.Curve
	for _, c := range a.contestants {
		curves := make([]picture.Curve, 4)
		for i := range curves {
			curves[i].Name = c.name
		}
		add := func(i, n int, cost float64) {
			curves[i].Points = append(curves[i].Points, [2]float64{float64(n), float64(int64(cost*10)) / 10})
		}
		if c.renews {
			for _, n := range or(s, []int{1000, 10_000, 100_000}, []int{1000, 10_000}) {
				got, err := a.treasure(c, n, s)
				if err != nil {
					return nil, err
				}
				add(0, n, got.Bytes*float64(n))
				add(1, n, got.CPU*10) // milliseconds of CPU time per second
				add(2, n, got.rate)
				s.log("%s: %d locks %+v", c.name, n, got)
			}
			memory, cpu, renewals = append(memory, curves[0]), append(cpu, curves[1]), append(renewals, curves[2])
		}
		if drawnPeers[c.name] == "" && c.name != onGoredis {
			continue
		}
		for _, clients := range or(s, []int{1, 10, 100}, []int{1, 10}) {
			rate, err := a.crowdAsleep(c, clients, or(s, ttl+10*time.Second, 3*time.Second), s)
			if err != nil {
				return nil, err
			}
			add(3, 100*clients, rate)
			s.log("%s: %d waiters %.1f commands/s", c.name, 100*clients, rate)
		}
		waiting = append(waiting, curves[3])
	}
	locks := "locks held by one process"
	return picture.Cost{Measured: on + fmt.Sprintf(". Leases of %v. Logarithmic scales", ttl), Panels: []picture.CostPanel{
		{Title: "Memory of the client", Of: locks, Unit: "B", Curves: memory},
		{Title: "Client CPU, ms per second", Of: locks, Curves: cpu},
		{Title: "Redis commands per second", Of: locks, Curves: renewals},
		{Title: "Redis commands per second, idle", Of: "waiters for one lock", Curves: waiting},
	}}, nil
}
