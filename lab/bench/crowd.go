package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"
)

// crowd lets processes of eight goroutines each contend for one name, and looks
// at who got how many turns.
func crowd(a *arena, s settings) ([]row, error) {
	got, _, err := a.brawls(s, shape{processes: 8, clients: 1, each: 8}, (s.rounds+4)/5, or(s, 3*time.Second, time.Second))
	if err != nil {
		return nil, err
	}
	rows := a.fairness(got, "64 contenders in 8 processes: ")
	rows = append(rows, a.middles(got, row{what: "fairness between the processes (Jain)", places: 4}, func(b *brawl) float64 { return jain(b.byProcess(8)) }))
	return append(rows, a.middles(got, row{what: "hand-overs per second"}, (*brawl).rate)), nil
}

// shape is how many contend: processes of so many clients with so many goroutines each.
type shape struct{ processes, clients, each int }

// brawls lets all libraries contend for a number of rounds, in turn. It returns what
// came of each round, and the acquisitions per second.
func (a *arena) brawls(s settings, sh shape, rounds int, length time.Duration) (map[string][]*brawl, map[string][]float64, error) {
	got := map[string][]*brawl{}
	rates, err := interleave(rounds, a.libraries(), func(c contestant) string { return c.name }, func(c contestant) (float64, error) {
		b, err := a.brawl(c, sh, time.Second/2, length)
		if err != nil {
			return 0, err
		}
		got[c.name] = append(got[c.name], b)
		return b.rate(), nil
	})
	return got, rates, err
}

// fairness are the rows about who got how many turns.
func (a *arena) fairness(got map[string][]*brawl, prefix string) []row {
	return []row{
		a.middles(got, row{what: prefix + "fairness (Jain)", places: 4, bars: []bar{atLeast(0.999)}}, func(b *brawl) float64 { return jain(b.turns) }),
		a.middles(got, row{what: "... fewest turns of a contender, to the mean", places: 3, bars: []bar{atLeast(0.9)}}, func(b *brawl) float64 { return float64(slices.Min(b.turns)) / b.mean() }),
		a.middles(got, row{what: "... most turns of a contender, to the mean", places: 3}, func(b *brawl) float64 { return float64(slices.Max(b.turns)) / b.mean() }),
	}
}

// middles fills a row with the medians of what read finds in the brawls.
func (a *arena) middles(got map[string][]*brawl, r row, read func(*brawl) float64) row {
	r.values = map[string]float64{}
	for _, c := range a.libraries() {
		var values []float64
		for _, b := range got[c.name] {
			values = append(values, read(b))
		}
		r.values[c.name] = percentile(values, 50)
	}
	return r
}

// brawl is what came of many contenders for one name.
type brawl struct {
	turns       []int // of each contender
	seconds     float64
	sent, all   float64       // commands that clients sent, and all that the server ran
	server, own time.Duration // CPU time of the server, and of the processes that contend
}

func (b *brawl) sum() float64 {
	sum := 0
	for _, n := range b.turns {
		sum += n
	}
	return float64(max(sum, 1))
}

func (b *brawl) mean() float64 { return b.sum() / float64(len(b.turns)) }

func (b *brawl) rate() float64 { return b.sum() / b.seconds }

// per is a cost of all turns for one of them, in microseconds.
func (b *brawl) per(cost time.Duration) float64 { return cost.Seconds() * 1e6 / b.sum() }

// byProcess are the turns of each process, which has so many contenders.
func (b *brawl) byProcess(contenders int) []int {
	var sums []int
	for one := range slices.Chunk(b.turns, contenders) {
		sum := 0
		for _, n := range one {
			sum += n
		}
		sums = append(sums, sum)
	}
	return sums
}

// window is a stretch of time that every process measures by the wall clock.
type window struct{ From, Until time.Time }

// spell is what a process of contenders tells of a window.
type spell struct {
	Turns []int
	CPU   time.Duration
}

// brawl lets contenders take turns for a while, and begins to count after another,
// when everybody is in the crowd.
func (a *arena) brawl(c contestant, sh shape, warm, length time.Duration) (*brawl, error) {
	var workers []*worker
	defer func() { dismissAll(workers) }()
	name := "crowd-" + rand.Text() // nobody of an earlier brawl is in the way
	for range sh.processes {
		w, err := a.hire(order{Contestant: c.name, Job: "turn", Name: name, Clients: sh.clients, Each: sh.each})
		if err != nil {
			return nil, err
		}
		workers = append(workers, w)
	}
	from := time.Now().Add(warm)
	win := window{from, from.Add(length)}
	for _, w := range workers {
		if err := w.tell(win); err != nil {
			return nil, err
		}
	}
	spent, err := a.spend(win, c)
	if err != nil {
		return nil, err
	}
	for _, w := range workers {
		var one spell
		if err := w.hear(&one); err != nil {
			return nil, err
		}
		spent.turns = append(spent.turns, one.Turns...)
		spent.own += one.CPU
	}
	return spent, nil
}

// spend reads the server's counters at both ends of a window.
func (a *arena) spend(win window, c contestant) (*brawl, error) {
	time.Sleep(time.Until(win.From))
	before, err := a.counters()
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(win.Until))
	after, err := a.counters()
	if err != nil {
		return nil, err
	}
	d := after.since(before)
	return &brawl{seconds: win.Until.Sub(win.From).Seconds(), sent: float64(c.sent(d)), all: float64(d.total), server: d.cpu}, nil
}

// always are commands that cannot come from a script.
var always = []string{"eval", "evalsha", "evalsha_ro", "fcall", "script|load", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe", "ping", "wait", "client|tracking", "hello"}

// sent is how many commands the contestant's clients sent.
func (c contestant) sent(d counters) int64 {
	sum := int64(0)
	for _, name := range slices.Concat(always, c.sends) {
		sum += d.calls[name]
	}
	return sum
}

// turnJob lets goroutines take turns and counts those of the window it reads.
func turnJob(c contestant, o order, in io.Reader) error {
	var clients []client
	for range o.Clients {
		p := &process{addr: o.Addr}
		defer p.close()
		cl, err := c.open(p)
		if err != nil {
			return err
		}
		defer cl.close()
		clients = append(clients, cl)
	}
	if err := say("ready"); err != nil {
		return err
	}
	var win window
	if err := json.NewDecoder(in).Decode(&win); err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.Background(), win.Until)
	defer cancel()
	got := spell{Turns: make([]int, o.Clients*o.Each)}
	var all sync.WaitGroup
	for i := range got.Turns {
		all.Go(func() { got.Turns[i] = takeTurns(ctx, clients[i/o.Each], o.Name, win) })
	}
	time.Sleep(time.Until(win.From))
	before := cpuTime()
	<-ctx.Done()
	got.CPU = cpuTime() - before
	all.Wait()
	return say(got)
}

func takeTurns(ctx context.Context, cl client, name string, win window) (turns int) {
	for ctx.Err() == nil {
		l, err := cl.acquire(ctx, name)
		if err != nil {
			continue // the end of the window; a contestant's errors show as missing turns
		}
		if now := time.Now(); now.After(win.From) && now.Before(win.Until) {
			turns++
		}
		_ = l.release()
	}
	return turns
}
