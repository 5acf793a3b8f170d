package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

// handover measures how long a lock takes to get from a process that releases
// it to one that waits for it: from just before the release until the waiter
// knows that it holds. The limit is the signal of the suite.
func handover(a *arena, s settings) ([]row, error) {
	var pairs []*pair
	defer func() {
		for _, p := range pairs {
			p.close()
		}
	}()
	for _, c := range append(a.libraries(), a.signal) {
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
	took, err := interleave(or(s, 8, 2)*s.rounds, pairs, name, (*pair).pass)
	if err != nil {
		return nil, err
	}
	if a.signal.name != bare { // a column of the table
		took[bare] = took[a.signal.name]
		delete(took, a.signal.name)
	}
	return []row{handoverRow(took, 50, a.bars["handover"]...), handoverRow(took, 99)}, nil
}

func handoverRow(took map[string][]float64, p int, bars ...bar) row {
	r := row{what: fmt.Sprintf("hand-over to a waiting process, p%d", p), unit: "s",
		values: map[string]float64{}, ratios: map[string]float64{}, base: bare, bars: bars}
	for name, values := range took {
		r.values[name] = percentile(values, p)
		r.ratios[name] = r.values[name] / percentile(took[bare], p)
	}
	return r
}

// pair is a holder in this process and a waiter in another.
type pair struct {
	name   string
	holder client
	waiter *worker
	hire   func() (*worker, error) // makes another waiter
}

func (a *arena) pair(c contestant) (*pair, error) {
	holder, err := c.open(a.home)
	if err != nil {
		return nil, err
	}
	hire := func() (*worker, error) { return a.hire(order{Contestant: c.name, Job: "wait"}) }
	waiter, err := hire()
	if err != nil {
		holder.close()
		return nil, err
	}
	return &pair{c.name, holder, waiter, hire}, nil
}

func (p *pair) close() {
	p.waiter.dismiss()
	p.holder.close()
}

// patience is how long a hand-over may take. One that takes longer counts as that,
// and another waiter takes its place.
const patience = time.Minute

// pass hands the lock over once and returns how many seconds it took. The hold
// has a random length, so that a poller's period does not beat with it.
func (p *pair) pass() (float64, error) {
	l, err := p.holder.acquire(context.Background(), "handover")
	if err != nil {
		return 0, err
	}
	if err := p.waiter.tell("handover"); err != nil {
		return 0, err
	}
	time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
	sent := time.Now()
	if err := l.release(); err != nil {
		return 0, err
	}
	waiter := p.waiter
	late := time.AfterFunc(patience, func() { _ = waiter.cmd.Process.Kill() })
	var granted time.Time
	err = waiter.hear(&granted)
	switch inTime := late.Stop(); {
	case !inTime:
		fmt.Fprintf(os.Stderr, "%s: a waiter did not get the lock in %v\n", p.name, patience)
		if waiter, err = p.hire(); err != nil {
			return 0, err
		}
		p.waiter.dismiss()
		p.waiter = waiter
		return patience.Seconds(), nil
	case err != nil:
		return 0, fmt.Errorf("the waiter did not get it: %w", err)
	}
	return granted.Sub(sent).Seconds(), nil // by the wall clock, which both processes read
}

// waitJob waits for each name it reads, says when it held it, and releases.
func waitJob(c contestant, o order, in io.Reader) error {
	open := c.open
	if c.wait != nil {
		open = c.wait
	}
	p := &process{addr: o.Addr}
	defer p.close()
	cl, err := open(p)
	if err != nil {
		return err
	}
	defer cl.close()
	if err := say("ready"); err != nil {
		return err
	}
	for names := json.NewDecoder(in); ; {
		var name string
		if names.Decode(&name) != nil {
			return nil // the end of the input
		}
		l, err := cl.acquire(context.Background(), name)
		granted := time.Now()
		if err != nil {
			return err
		}
		if err := l.release(); err != nil {
			return err
		}
		if err := say(granted); err != nil {
			return err
		}
	}
}
