package sim

import (
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
)

// Campaign is a set of schedules of several classes.
type Campaign struct {
	Classes []*Class
	Seed    uint64 // of the first schedule of each class
	Events  int64  // minimum number of events in total
	Cores   int    // classes simulated at the same time; 0 means 1
	Lacks   Line   // lines that the clients and nodes leave out
}

// Result is the result of one class.
type Result struct {
	Class *Class
	Tally Tally
	Err   error // first violation that the class does not allow
}

// Play runs a campaign. Its results depend on the campaign only, not on the number of cores.
func (c Campaign) Play() []Result {
	results := make([]Result, len(c.Classes))
	next := make(chan int, len(c.Classes))
	for i := range c.Classes {
		next <- i
	}
	close(next)
	var players sync.WaitGroup
	for range max(c.Cores, 1) {
		players.Go(func() { // ends when all classes are played
			w := &World{Lacks: c.Lacks}
			for i := range next {
				results[i] = c.play(w, c.Classes[i])
			}
		})
	}
	players.Wait()
	return results
}

func (c Campaign) play(w *World, class *Class) Result {
	w.Tally = Tally{}
	r := Result{Class: class}
	share := c.Events/int64(len(c.Classes)) + 1
	for seed := c.Seed; w.Tally.Events < share; seed++ {
		if err := w.Run(class, seed); err != nil && r.Err == nil {
			r.Err = err
		}
	}
	r.Tally = w.Tally
	return r
}

// Report prints results as a table, and returns the first violation that is not allowed.
func Report(out io.Writer, results []Result) (failed error) {
	var inside, outside Tally
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "class\tschedules\tevents\tacquired\trenewed\tlost\tstale writes\toverlaps\ttoken order\tother\t")
	for _, part := range []bool{true, false} {
		for _, r := range results {
			if r.Class.Inside() != part {
				continue
			}
			row(t, r.Class.Name, &r.Tally)
			if failed == nil {
				failed = r.Err
			}
			if part {
				inside.Add(&r.Tally)
			} else {
				outside.Add(&r.Tally)
			}
		}
		if part {
			row(t, "INSIDE THE MODEL", &inside)
		} else {
			row(t, "OUTSIDE OF IT", &outside)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		for v, n := range r.Tally.Broken {
			if n > 0 {
				fmt.Fprintf(out, "%s: %v first at -class %q -seed %d -trace\n", r.Class.Name, Violation(v), r.Class.Name, r.Tally.Seeds[v])
			}
		}
	}
	fmt.Fprintf(out, "\n%d events. Stale writes: a resource without a guard accepts them, a guarded one refused all of these.\n", inside.Events+outside.Events)
	return failed
}

func row(out io.Writer, name string, t *Tally) {
	other := int64(0)
	for v := Disorder + 1; v < violations; v++ {
		other += t.Broken[v]
	}
	fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, t.Schedules, t.Events, t.Acquired, t.Renewed, t.Lost,
		t.Stale, t.Broken[Overlap], t.Broken[Disorder], other)
}
