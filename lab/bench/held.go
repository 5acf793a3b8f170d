package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
)

// held lets one process hold very many locks for longer than their lease, and
// looks at its memory and its CPU time, and whether it lost any. Contestants
// that do not renew by themselves stay away.
func held(a *arena, s settings) ([]row, error) {
	n := or(s, 100_000, 10_000)
	bytes := row{what: fmt.Sprintf("%d locks held by one process: bytes of heap and stacks each", n), values: map[string]float64{}, bars: []bar{noMore(550)}}
	cpu := row{what: "... client CPU, % of one core", places: 1, values: map[string]float64{}}
	rate := row{what: "... server commands per second, in scripts too", values: map[string]float64{}}
	lost := row{what: "... lost in " + or(s, "more than a TTL", "half a TTL"), values: map[string]float64{}, bars: []bar{noMore(0)}}
	for _, c := range a.libraries() {
		if !c.renews {
			continue
		}
		got, err := a.treasure(c, n, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		s.log("held: %s %+v", c.name, got)
		bytes.values[c.name], cpu.values[c.name] = got.Bytes, got.CPU
		rate.values[c.name], lost.values[c.name] = got.rate, float64(got.Lost)
	}
	return []row{bytes, cpu, rate, lost}, nil
}

// treasure is what holding many locks takes.
type treasure struct {
	Bytes float64 // of each lock
	CPU   float64 // percent of one core while holding
	Lost  int
	Took  float64 // seconds to take them
	rate  float64 // commands per second
}

func (a *arena) treasure(c contestant, n int, s settings) (treasure, error) {
	var got treasure
	w, err := a.hire(order{Contestant: c.name, Job: "hold", Each: n})
	if err != nil {
		return got, err
	}
	defer w.dismiss()
	from := time.Now()
	win := window{from, from.Add(or(s, ttl+5*time.Second, ttl/2))}
	if err := w.tell(win); err != nil {
		return got, err
	}
	spent, err := a.spend(win, c)
	if err != nil {
		return got, err
	}
	err = w.hear(&got)
	got.rate = spent.all / spent.seconds
	return got, err
}

// holdJob acquires very many locks and holds them for a while.
func holdJob(c contestant, o order, in io.Reader) error {
	p := &process{addr: o.Addr}
	defer p.close()
	cl, err := c.open(p)
	if err != nil {
		return err
	}
	defer cl.close()
	names, locks := make([]string, o.Each), make([]lock, o.Each)
	for i := range names {
		names[i] = fmt.Sprint("held-", i)
	}
	begun := time.Now()
	warm := min(1000, o.Each/10)
	if err := hoard(cl, names[:warm], locks); err != nil { // what is there once is not counted
		return err
	}
	took := time.Since(begun)
	before := inUse()
	begun = time.Now()
	if err := hoard(cl, names[warm:], locks[warm:]); err != nil {
		return err
	}
	took += time.Since(begun)
	got := treasure{Took: took.Seconds(), Bytes: (inUse() - before) / float64(o.Each-warm)}
	if err := say("ready"); err != nil {
		return err
	}
	var win window
	if err := json.NewDecoder(in).Decode(&win); err != nil {
		return err
	}
	cpu := cpuTime()
	time.Sleep(time.Until(win.Until))
	got.CPU = 100 * (cpuTime() - cpu).Seconds() / win.Until.Sub(win.From).Seconds()
	for _, l := range locks {
		if l.err() != nil {
			got.Lost++
		}
	}
	if err := say(got); err != nil {
		return err
	}
	return parallelDo(len(locks), func(i int) error { _ = locks[i].release(); return nil })
}

func hoard(cl client, names []string, locks []lock) error {
	return parallelDo(len(names), func(i int) (err error) {
		locks[i], err = cl.acquire(context.Background(), names[i])
		return err
	})
}

// parallelDo calls do for 0 to n-1 from 64 goroutines.
func parallelDo(n int, do func(i int) error) error {
	const goroutines = 64
	var all sync.WaitGroup
	errs := make([]error, goroutines)
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < n && errs[g] == nil; i += goroutines {
				errs[g] = do(i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// inUse is the heap and the stacks that are left after a collection.
func inUse() float64 {
	time.Sleep(100 * time.Millisecond) // for goroutines on their way out
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
