package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock"
)

// gauge is what one process saw while it held its locks.
type gauge struct {
	Lost, Ended int     // locks, and waits
	Left        float64 // the least that was left of a lease when looked at, of its term
	Bytes       float64 // resident memory
	Connections int
	CPU         float64 // percent of a core
}

// effort is what a phase took: seconds, and acquires that gave up and came again.
type effort struct {
	Took  float64
	Again int
}

// loadJob holds names of its own, and then waits for some that the next process holds.
func loadJob(c contestant, o order, in io.Reader) error {
	p := &process{addr: o.Addr}
	defer p.close()
	cl, err := c.open(p)
	if err != nil {
		return err
	}
	defer cl.close()
	locks := cl.(ourClient).locks
	commands := json.NewDecoder(in)
	var win window
	next := func(say1 any) error {
		if err := say(say1); err != nil {
			return err
		}
		return commands.Decode(&win)
	}
	if err := next("ready"); err != nil {
		return nil
	}
	begun, held := time.Now(), make([]*fencelock.Lock, o.Each)
	name := func(process, i int) string { return fmt.Sprintf("scale-%d-%d", process%o.Of, i) }
	var again atomic.Int64
	err = parallelDo(len(held), func(i int) (err error) {
		for {
			held[i], err = locks.Acquire(context.Background(), name(o.Index, i))
			if !errors.Is(err, fencelock.ErrUnavailable) {
				return err
			}
			again.Add(1) // a server that is asked by all at once
		}
	})
	if err != nil {
		return err
	}
	if err := next(effort{time.Since(begun).Seconds(), int(again.Load())}); err != nil {
		return nil
	}
	begun = time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	again.Store(0)
	ended := queue(ctx, locks, o, name, &again)
	if err := next(effort{time.Since(begun).Seconds(), int(again.Load())}); err != nil {
		return nil
	}
	got := watchOver(held, win)
	got.Ended = int(ended.Load())
	_ = next(got) // the end of the input
	return nil
}

// queue lets goroutines wait for names of the next process, and returns when all are
// in their queues. It counts those that have to come again, and, in what it returns,
// those who do not wait any more.
func queue(ctx context.Context, locks *fencelock.Locker, o order, name func(process, i int) string, again *atomic.Int64) *atomic.Int64 {
	var ended atomic.Int64
	var joined sync.WaitGroup
	joined.Add(o.Waiters)
	for i := range o.Waiters {
		var once sync.Once
		with := locks.With(fencelock.Options{OnWait: func(fencelock.WaitInfo) { once.Do(joined.Done) }})
		go func() { // ends with ctx
			for {
				lock, err := with.Acquire(ctx, name(o.Index+1, i%o.Each))
				if err == nil { // kept, as the load of a holder
					context.AfterFunc(ctx, func() { lock.Release() })
				}
				if ctx.Err() != nil {
					return
				}
				if !errors.Is(err, fencelock.ErrUnavailable) {
					ended.Add(1)
					once.Do(joined.Done)
					return
				}
				again.Add(1)
			}
		}()
	}
	joined.Wait()
	return &ended
}

// watchOver looks at the locks of this process until the window ends.
func watchOver(held []*fencelock.Lock, win window) gauge {
	got := gauge{Left: 1}
	cpu, from := cpuTime(), time.Now()
	for time.Now().Before(win.Until) {
		for _, l := range held {
			got.Left = min(got.Left, time.Until(l.Deadline()).Seconds()/ttl.Seconds())
		}
		time.Sleep(250 * time.Millisecond)
	}
	got.CPU = 100 * (cpuTime() - cpu).Seconds() / time.Since(from).Seconds()
	for _, l := range held {
		if l.Err() != nil {
			got.Lost++
		}
	}
	got.Bytes, got.Connections = resident(), connections()
	return got
}

// resident is the memory that this process occupies.
func resident() float64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kB, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kB * 1024
		}
	}
	return 0
}

// connections is how many sockets this process has open: all are the engine's.
func connections() (n int) {
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
