package main

import (
	"os"
	"runtime"

	"github.com/fencelock/fencelock/internal/testkit/sim"
	"github.com/fencelock/fencelock/lab/evidence"
)

// simulate plays the simulator's classes.
func simulate(f flags) (r evidence.Report, err error) {
	results := sim.Campaign{Classes: sim.Classes, Seed: 1, Events: f.events, Cores: runtime.NumCPU()}.Play()
	if err := sim.Report(os.Stdout, results); err != nil {
		return r, err
	}
	for _, s := range results {
		c := evidence.Class{
			Name: s.Class.Name, About: s.Class.About, Model: len(s.Class.Breaks) == 0,
			Schedules: s.Tally.Schedules, Events: s.Tally.Events, Acquisitions: s.Tally.Acquired,
		}
		for v, n := range s.Tally.Broken {
			if n > 0 {
				if c.Violations == nil {
					c.Violations = map[string]int64{}
				}
				c.Violations[sim.Violation(v).String()] = n
			}
		}
		r.Simulator = append(r.Simulator, c)
	}
	return r, nil
}
