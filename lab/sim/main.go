// Command sim plays schedules of faults against the lock's state machines and
// prints what came of them. It exits with 1 if a promise was broken that should
// hold, and names the class and the seed that show it again:
//
//	sim -class everything -seed 42 -trace
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/sim"
)

func main() {
	class := flag.String("class", "", "play this class only")
	seed := flag.Uint64("seed", 1, "the seed of the first schedule")
	events := flag.Int64("events", 200_000_000, "play at least so many events")
	cores := flag.Int("cores", runtime.NumCPU(), "play so many classes at the same time")
	trace := flag.Bool("trace", false, "play one schedule, and print its events")
	mutants := flag.Bool("mutants", false, "play locks without one of their safety lines")
	list := flag.Bool("list", false, "say what the classes are")
	flag.Parse()
	if err := run(*class, *seed, *events, *cores, *trace, *mutants, *list); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(name string, seed uint64, events int64, cores int, trace, mutants, list bool) error {
	classes := sim.Classes
	if name != "" {
		c := sim.ClassOf(name)
		if c == nil {
			return fmt.Errorf("no class %q; see -list", name)
		}
		classes = []*sim.Class{c}
	}
	switch {
	case list:
		for _, c := range classes {
			fmt.Printf("%-18s %s\n", c.Name, c.About)
		}
		return nil
	case mutants:
		return hunt(seed, events)
	case trace && name == "":
		return fmt.Errorf("a trace is of one schedule: say which -class")
	case trace:
		out := bufio.NewWriter(os.Stdout)
		w := &sim.World{Trace: out}
		err := w.Run(classes[0], seed)
		if bad := out.Flush(); err == nil {
			err = bad
		}
		return err
	}
	begin := time.Now()
	err := sim.Report(os.Stdout, sim.Campaign{Classes: classes, Seed: seed, Events: events, Cores: cores}.Play())
	fmt.Printf("%v\n", time.Since(begin).Round(time.Second))
	return err
}

// hunt searches for a schedule that shows each mutant.
func hunt(seed uint64, events int64) error {
	var missed error
	for _, m := range sim.Mutants {
		found, schedules := m.Hunt(seed, events/int64(len(sim.Mutants)))
		if found == 0 {
			missed = fmt.Errorf("%q was not found", m.Name)
			fmt.Printf("%-46s %-12s NOT FOUND in %d schedules\n", m.Name, m.Class, schedules)
			continue
		}
		fmt.Printf("%-46s %-12s %s at seed %d\n", m.Name, m.Class, m.Shows, found)
	}
	return missed
}
