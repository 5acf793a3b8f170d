package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// idle lets many goroutines in many clients wait for one name that does not
// come free, and counts what they ask of the server meanwhile.
func idle(a *arena, s settings) ([]row, error) {
	clients := or(s, 100, 10)
	r := row{what: fmt.Sprintf("%d waiters in %d clients: commands per second while nothing happens", 100*clients, clients), values: map[string]float64{}, bars: []bar{noMore(100)}}
	for _, c := range a.libraries() {
		length := or(s, 5*time.Second, 3*time.Second)
		if c.name == ours {
			length = or(s, ttl+10*time.Second, 3*time.Second) // what happens once in a TTL counts
		}
		rate, err := a.crowdAsleep(c, clients, length, s)
		if err != nil {
			return nil, err
		}
		r.values[c.name] = rate
		s.log("idle: %s %.1f commands/s", c.name, rate)
	}
	return []row{r}, nil
}

func (a *arena) crowdAsleep(c contestant, clients int, length time.Duration, s settings) (float64, error) {
	holder, err := c.open(a.home)
	if err != nil {
		return 0, err
	}
	defer holder.close()
	l, err := holder.acquire(context.Background(), "idle")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.release() }()
	w, err := a.hire(order{Contestant: c.name, Job: "idle", Clients: clients, Each: 100})
	if err != nil {
		return 0, err
	}
	defer w.dismiss()
	from := time.Now().Add(or(s, 8*time.Second, 2*time.Second)) // until all have joined
	spent, err := a.spend(window{from, from.Add(length)}, c)
	if err != nil {
		return 0, err
	}
	return spent.all / spent.seconds, nil
}

// idleJob opens clients and lets goroutines of each wait for one name.
func idleJob(c contestant, o order, in io.Reader) error {
	ctx := untilEOF(in)
	var all sync.WaitGroup
	for range o.Clients {
		p := &process{addr: o.Addr}
		defer p.close()
		cl, err := c.open(p)
		if err != nil {
			return err
		}
		defer cl.close()
		for range o.Each {
			all.Go(func() {
				if l, err := cl.acquire(ctx, "idle"); err == nil {
					_ = l.release()
				}
			})
		}
	}
	if err := say("ready"); err != nil {
		return err
	}
	all.Wait()
	return nil
}
