package main

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"time"
)

// scales are the deployments that the command scale loads, ours alone.
var scales = []suite{
	{name: "scale-redis", title: "one Redis", contestants: []contestant{{name: ours, open: openOurs}}, start: startRedis},
	{name: "scale-cluster", title: "a Cluster of 3", contestants: []contestant{{name: ours, open: openOurs}}, start: startCluster},
	{name: "scale-postgres", title: "one PostgreSQL", contestants: []contestant{{name: ours, open: openOursOnPostgres}}, start: startPostgres},
}

// size is how much load there is.
type size struct {
	processes, names, waiters int // names of each process, and waiters of all
	seconds, passes           int
}

// scale loads a server with processes that hold and wait for many names, and prints
// a row about what that takes, and what a hand-over takes beside it.
func scale(args []string) error {
	flags := flag.NewFlagSet("scale", flag.ExitOnError)
	var n size
	engine := flags.String("engine", "redis", "redis, cluster or postgres")
	flags.IntVar(&n.processes, "processes", 100, "processes")
	flags.IntVar(&n.names, "names", 1000, "names that each process holds")
	flags.IntVar(&n.waiters, "waiters", 10_000, "waiters, of all processes together")
	flags.IntVar(&n.seconds, "seconds", 35, "how long to hold them")
	flags.IntVar(&n.passes, "passes", 250, "hand-overs meanwhile")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, s := range scales {
		if s.name == "scale-"+*engine {
			return s.load(n, logger(time.Now()))
		}
	}
	return fmt.Errorf("no engine %q", *engine)
}

// load runs one deployment under load and prints its row.
func (s suite) load(n size, log func(string, ...any)) error {
	a, err := newArena(s)
	if err != nil {
		return err
	}
	defer a.stop()
	var workers []*worker
	defer func() { dismissAll(workers) }()
	for i := range n.processes {
		w, err := a.hire(order{Contestant: ours, Job: "load", Each: n.names, Index: i, Of: n.processes, Waiters: n.waiters / n.processes})
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	pair, err := a.pair(s.contestants[0])
	if err != nil {
		return err
	}
	defer pair.close()
	held, err := phase[effort](workers, "hold", 1)
	if err != nil {
		return err
	}
	log("held in %s", together(held))
	queued, err := phase[effort](workers, "wait", 1)
	if err != nil {
		return err
	}
	log("queued in %s", together(queued))
	from := time.Now()
	members := family(a.server) // none comes or goes while nothing is asked
	before, cpu := count(a), cpuOf(members)
	var got []gauge
	var took []float64
	var all sync.WaitGroup
	var loadErr, passErr error
	all.Go(func() { got, loadErr = phase[gauge](workers, "stay", n.seconds) })
	for range n.passes {
		var one float64
		if one, passErr = pair.pass(); passErr != nil || time.Since(from) > time.Duration(n.seconds)*time.Second {
			break
		}
		took = append(took, one)
	}
	all.Wait()
	if loadErr != nil || passErr != nil {
		return errors.Join(loadErr, passErr)
	}
	length := time.Since(from).Seconds()
	used := 100 * (cpuOf(members) - cpu).Seconds() / length
	fmt.Printf("| %s | %d | %d | %d | %s | %s | %s | %.0f %% | %.0f | %s, %s |\n", s.title, n.processes, n.names, n.waiters,
		together(held), together(queued), summary(got), used, (count(a)-before)/length, short(percentile(took, 50)), short(percentile(took, 99)))
	return nil
}

// phase tells all workers to begin something, and receives how each of them ended.
func phase[T any](workers []*worker, what string, seconds int) ([]T, error) {
	begun := time.Now()
	for _, w := range workers {
		if err := w.tell(window{From: begun, Until: begun.Add(time.Duration(seconds) * time.Second)}); err != nil {
			return nil, err
		}
	}
	var all []T
	for i, w := range workers {
		var one T
		if err := w.hear(&one); err != nil {
			return nil, fmt.Errorf("process %d, %s: %w", i, what, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// summary is what the processes saw: locks lost and waits that ended, the least that
// was left of a lease, megabytes and connections of a process.
func summary(all []gauge) string {
	var sum gauge
	sum.Left = 1
	for _, g := range all {
		sum.Lost, sum.Ended = sum.Lost+g.Lost, sum.Ended+g.Ended
		sum.Left, sum.Bytes, sum.Connections = min(sum.Left, g.Left), sum.Bytes+g.Bytes, sum.Connections+g.Connections
		sum.CPU += g.CPU
	}
	n := float64(len(all))
	return fmt.Sprintf("%d, %d | %.0f %% | %.1f MB | %.1f | %.0f %%", sum.Lost, sum.Ended, 100*sum.Left, sum.Bytes/n/1e6, float64(sum.Connections)/n, sum.CPU)
}

// together is how long the slowest process took, and how many acquires gave up.
func together(all []effort) string {
	var sum effort
	for _, e := range all {
		sum.Took, sum.Again = max(sum.Took, e.Took), sum.Again+e.Again
	}
	return fmt.Sprintf("%.0f s, %d", sum.Took, sum.Again)
}

// count is how many commands the server has run, 0 if it does not count.
func count(a *arena) float64 {
	c, err := a.counters()
	if err != nil {
		return 0
	}
	return float64(c.total)
}
