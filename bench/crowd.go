package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// crowd lets processes of eight goroutines each contend for one name, and looks
// at who got how many turns and what it cost the server.
func crowd(a *arena, s settings) ([]row, error) {
	rounds := (s.rounds + 4) / 5 // each is long
	got := map[string][]*brawl{}
	turn := func(processes int) func(contestant) (float64, error) {
		return func(c contestant) (float64, error) {
			b, err := a.brawl(c, processes, or(s, 3*time.Second, time.Second))
			if err == nil {
				key := fmt.Sprint(c.name, processes)
				got[key] = append(got[key], b)
			}
			return 0, err
		}
	}
	name := func(c contestant) string { return c.name }
	if _, err := interleave(rounds, a.libraries(), name, turn(8)); err != nil {
		return nil, err
	}
	rows := []row{
		a.middles(got, row{what: "64 contenders in 8 processes: fairness (Jain)", places: 4, bars: []bar{atLeast(0.999)}}, func(b *brawl) float64 { return jain(b.turns) }),
		a.middles(got, row{what: "fairness between the processes (Jain)", places: 4}, func(b *brawl) float64 { return jain(b.byProcess()) }),
		a.middles(got, row{what: "fewest turns of a contender, to the mean", places: 3, bars: []bar{atLeast(0.9)}}, func(b *brawl) float64 { return float64(slices.Min(b.turns)) / b.mean() }),
		a.middles(got, row{what: "most turns of a contender, to the mean", places: 3}, func(b *brawl) float64 { return float64(slices.Max(b.turns)) / b.mean() }),
	}
	if _, ok := a.server.(counting); ok {
		mine, err := a.find(ours)
		if err != nil {
			return nil, err
		}
		if _, err := interleave(rounds, []contestant{mine}, name, turn(1)); err != nil {
			return nil, err
		}
		rows = append(rows, a.commands(got)...)
	}
	return append(rows, a.middles(got, row{what: "hand-overs per second"}, func(b *brawl) float64 { return b.sum() / b.seconds })), nil
}

// commands are the rows about what the crowd asks of the server.
func (a *arena) commands(got map[string][]*brawl) []row {
	all := func(b *brawl) float64 { return b.all / b.sum() }
	few := middle(got[ours+"1"], all)
	return []row{
		a.middles(got, row{what: "client commands per acquisition", places: 2}, func(b *brawl) float64 { return b.sent / b.sum() }),
		a.middles(got, row{what: "commands per acquisition, in scripts too", places: 2, bars: []bar{{test: func(r row) (string, bool) {
			return fmt.Sprintf("<= 1.2 x the %.2f of 8 contenders", few), r.values[ours] <= 1.2*few
		}}}}, all),
	}
}

// middles fills a row with the medians of what read finds in the brawls of 8 processes.
func (a *arena) middles(got map[string][]*brawl, r row, read func(*brawl) float64) row {
	r.values = map[string]float64{}
	for _, c := range a.libraries() {
		r.values[c.name] = middle(got[c.name+"8"], read)
	}
	return r
}

func middle(all []*brawl, read func(*brawl) float64) float64 {
	var values []float64
	for _, b := range all {
		values = append(values, read(b))
	}
	return percentile(values, 50)
}

// brawl is what came of many contenders for one name.
type brawl struct {
	turns     []int // of each contender
	seconds   float64
	sent, all float64 // commands that clients sent, and all that the server ran
}

func (b *brawl) sum() float64 {
	sum := 0
	for _, n := range b.turns {
		sum += n
	}
	return float64(max(sum, 1))
}

func (b *brawl) mean() float64 { return b.sum() / float64(len(b.turns)) }

// byProcess are the turns of each process.
func (b *brawl) byProcess() []int {
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

// contenders are how many goroutines of each process are in a crowd.
const contenders = 8

// window is a stretch of time that every process measures by the wall clock.
type window struct{ From, Until time.Time }

func (a *arena) brawl(c contestant, processes int, length time.Duration) (*brawl, error) {
	var workers []*worker
	defer func() { dismissAll(workers) }()
	for range processes {
		w, err := a.hire(order{Contestant: c.name, Job: "turn", Each: contenders})
		if err != nil {
			return nil, err
		}
		workers = append(workers, w)
	}
	from := time.Now().Add(time.Second) // by then everybody is in the crowd
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
		var turns []int
		if err := w.hear(&turns); err != nil {
			return nil, err
		}
		spent.turns = append(spent.turns, turns...)
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
	return &brawl{seconds: win.Until.Sub(win.From).Seconds(), sent: float64(c.sent(d)), all: float64(d.total)}, nil
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
	p := &process{addr: o.Addr}
	defer p.close()
	cl, err := c.open(p)
	if err != nil {
		return err
	}
	defer cl.close()
	if err := say("ready"); err != nil {
		return err
	}
	var win window
	if err := json.NewDecoder(in).Decode(&win); err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.Background(), win.Until)
	defer cancel()
	turns := make([]int, o.Each)
	var all sync.WaitGroup
	for i := range turns {
		all.Go(func() { turns[i] = takeTurns(ctx, cl, win) })
	}
	all.Wait()
	return say(turns)
}

func takeTurns(ctx context.Context, cl client, win window) (turns int) {
	for ctx.Err() == nil {
		l, err := cl.acquire(ctx, "crowd")
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
