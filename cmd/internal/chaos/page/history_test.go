package page_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// A run makes histories as a chaos run would write them, always the same ones. Workers take turns on
// locks; faults decide who loses what.
type run struct {
	h      *history.History
	random *rand.Rand
	names  []string
	token  int64
	free   map[string]time.Duration // when the next worker is granted the lock
	idle   []time.Duration          // when the worker asks for its next lock
}

const ms = time.Millisecond

func newRun(length time.Duration, workers int, token int64, names ...string) *run {
	h := &history.History{Engine: "redis", Seed: 20261104, Length: length, TTL: 2 * time.Second,
		Started: time.Date(2026, 11, 4, 12, 0, 0, 0, time.UTC)}
	for i := range workers {
		h.Workers = append(h.Workers, fmt.Sprintf("w%d", i+1))
	}
	return &run{h: h, random: rand.New(rand.NewPCG(7, 7)), names: names, token: token, free: map[string]time.Duration{}, idle: make([]time.Duration, workers)}
}

func (r *run) between(low, high time.Duration) time.Duration {
	return low + time.Duration(r.random.Int64N(int64(high-low)))
}

// fault adds a fault to workers, or to the server if there are none.
func (r *run) fault(what, text string, from, to time.Duration, workers ...string) {
	f := history.Fault{What: what, Text: text, From: from, To: to, Workers: workers}
	if len(workers) == 0 {
		f.Server = "redis"
	}
	r.h.Faults = append(r.h.Faults, f)
}

// hit returns the first fault of a worker, or of the server, that is not over at from and starts
// before to.
func (r *run) hit(worker string, from, to time.Duration) *history.Fault {
	for i, f := range r.h.Faults {
		if (len(f.Workers) == 0 || slices.Contains(f.Workers, worker)) && f.To > from && f.From < to {
			return &r.h.Faults[i]
		}
	}
	return nil
}

// fillUntil lets the workers take locks until a time, or until there are enough acquisitions. One of
// long holds takes up to 3 s.
func (r *run) fillUntil(end time.Duration, long int, hold func() time.Duration, enough int) {
	defer func() {
		for i := range r.idle {
			r.idle[i] = max(r.idle[i], end)
		}
	}()
	for len(r.h.Acquisitions) < enough {
		w := 0
		for i := range r.idle {
			if r.idle[i] < r.idle[w] {
				w = i
			}
		}
		called, worker := r.idle[w], r.h.Workers[w]
		if called >= end {
			return
		}
		if f := r.hit(worker, called, called+1); f != nil && len(f.Workers) > 0 {
			r.idle[w] = f.To + r.between(1*ms, 5*ms)
			continue
		}
		name := r.names[0]
		if len(r.names) > 1 && r.random.IntN(5) == 0 {
			name = r.names[1+r.random.IntN(len(r.names)-1)]
		}
		granted := max(called+r.between(200*time.Microsecond, 900*time.Microsecond), r.free[name]+r.between(200*time.Microsecond, 600*time.Microsecond))
		if granted > called+4*time.Second || granted >= end {
			end := min(called+4*time.Second, end)
			r.h.Waits = append(r.h.Waits, history.Wait{Name: name, Worker: worker, From: called, To: end, Held: true, Text: "the wait is over"})
			r.idle[w] = end + r.between(1*ms, 30*ms)
			continue
		}
		if f := r.hit(worker, called, granted); f != nil && len(f.Workers) > 0 {
			r.h.Waits = append(r.h.Waits, history.Wait{Name: name, Worker: worker, From: called, To: f.From, Text: "the server is unreachable"})
			r.idle[w] = f.To + r.between(1*ms, 5*ms)
			continue
		}
		length := hold()
		if r.random.IntN(long) == 0 {
			length = r.between(500*ms, 3*time.Second)
		}
		r.acquire(w, name, called, granted, length)
	}
}

// acquire adds an acquisition, and what a fault makes of it.
func (r *run) acquire(w int, name string, called, granted, length time.Duration) {
	r.token += 1 + r.random.Int64N(3)
	worker := r.h.Workers[w]
	a := history.Acquisition{ID: strconv.Itoa(len(r.h.Acquisitions)), Name: name, Worker: worker, Token: r.token, Called: called, Returned: granted}
	a.Until = min(granted+length, r.h.Length)
	a.Ended = a.Until
	r.free[name], r.idle[w] = a.Until, a.Until+r.between(1*ms, 40*ms)
	if f := r.hit(worker, granted, a.Until); f != nil {
		switch f.What {
		case "kill":
			a.Until, a.Ended, a.Died = f.From-ms, 0, f.From
			r.free[name], r.idle[w] = f.From+r.h.TTL, f.To
		case "freeze":
			a.Until, a.Deadline, a.Lost, a.Ended = f.From, f.From+1900*ms, f.To+2*ms, f.To+4*ms
			a.Cause = fmt.Sprintf("lock %q with token %d was lost: no renewal was acknowledged before the deadline", name, a.Token)
			r.free[name], r.idle[w] = f.From+r.h.TTL-50*ms, f.To+10*ms
			r.h.Writes = append(r.h.Writes, history.Event{Name: name, Worker: worker, Token: a.Token, At: f.To + ms, Refused: true})
		case "cut":
			a.Until = f.From + 1900*ms
			a.Deadline, a.Lost, a.Ended, a.Cause = a.Until, a.Until, a.Until+80*ms, "the server was unreachable until its deadline"
			r.free[name], r.idle[w] = f.From+r.h.TTL-40*ms, f.To
		}
	}
	r.h.Waits = append(r.h.Waits, history.Wait{Name: name, Worker: worker, From: called, To: granted, Granted: true})
	r.h.Writes = append(r.h.Writes, history.Event{Name: name, Worker: worker, Token: a.Token, At: granted + (a.Until-granted)/2})
	r.h.Acquisitions = append(r.h.Acquisitions, a)
}

// stormy is a minute of redis with eight faults.
func stormy(violated bool) *history.History {
	r := newRun(60*time.Second, 8, 686, "stock:7781", "billing", "nightly-report")
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	r.fault("kill", "w3 is killed and started again", at(6.2), at(7.8), "w3")
	r.fault("freeze", "w5 is stopped", at(13.3), at(16.7), "w5")
	r.fault("cut", "host-b reaches no server", at(20.4), at(23.6), "w4", "w5", "w6")
	r.fault("kill", "w1 is killed and started again", at(27.1), at(28.2), "w1")
	r.fault("restart", "The server is restarted without its data", at(33.7), at(33.84))
	r.fault("slow", "Packets of w8 take 40 ms", at(41), at(42.2), "w8")
	r.fault("cut", "host-a reaches no server", at(47.4), at(48.3), "w1", "w2", "w3")
	r.fault("restart", "The server is restarted", at(53.2), at(53.45))
	busy := func() time.Duration { return r.between(1*ms, 60*ms) }
	script := []struct {
		worker       int
		name         string
		from, length float64
	}{
		{2, "stock:7781", 5.1, 2.4}, {7, "billing", 8.4, 2.4}, {4, "stock:7781", 12.2, 3}, {5, "stock:7781", 19.3, 2.2},
		{3, "nightly-report", 29.4, 2.1}, {1, "stock:7781", 33.2, .94},
	}
	for _, s := range script {
		r.fillUntil(at(s.from)-400*ms, 90, busy, 1<<30)
		r.idle[s.worker] = at(s.from)
		r.acquire(s.worker, s.name, at(s.from)-300*ms, max(at(s.from), r.free[s.name]+300*time.Microsecond), at(s.length))
		if violated && s.from == 33.2 {
			violate(r)
		}
	}
	r.fillUntil(r.h.Length, 90, busy, 1<<30)
	r.h.Judge(history.Rules{})
	return r.h
}

// violate lets w6 in while w2 holds, with an older token: the server has forgotten the lock.
func violate(r *run) {
	before := &r.h.Acquisitions[len(r.h.Acquisitions)-1]
	before.Token += 28
	before.Lost, before.Ended, before.Cause = before.Until, before.Until+12*ms, "the server does not have the lock any more"
	r.acquire(5, before.Name, before.Returned-100*ms, before.Until-180*ms, 650*ms)
	r.token += 28
}

// dense is a run of n short holds, most of them shorter than a millisecond, with tokens as on
// PostgreSQL. A frozen holder loses the lock.
func dense(n int) *history.History {
	r := newRun(time.Duration(n)*2200*time.Microsecond, 12, 1793712600024512<<8, "hot", "warm", "cold", "rare")
	r.h.Engine = "postgres"
	r.fault("kill", "w2 is killed and started again", r.h.Length/5, r.h.Length/5+time.Second, "w2")
	r.fault("freeze", "w7 is stopped", r.h.Length/2, r.h.Length/2+3*time.Second, "w7")
	short := func() time.Duration { return r.between(20*time.Microsecond, 1200*time.Microsecond) }
	r.fillUntil(r.h.Length/2-time.Second, 5000, short, n)
	r.acquire(6, "hot", r.h.Length/2-900*ms, r.h.Length/2-800*ms, 2*time.Second)
	r.fillUntil(r.h.Length, 5000, short, n)
	r.h.Judge(history.Rules{})
	return r.h
}

// hostile has names that would be HTML and JavaScript, and tokens at both ends of an int64.
func hostile() *history.History {
	r := newRun(10*time.Second, 3, 1, `</script><script>alert("lock")</script>`, "ünï<b>cödé</b>&amp;")
	r.h.Engine = `<i>"redis"</i>`
	for i := range r.h.Workers {
		r.h.Workers[i] = fmt.Sprintf(`<img src=x onerror=alert(%d)> with a name that is longer than a lane`, i)
	}
	r.fault("<u>slow</u>", "<s>late</s>", 2*time.Second, 4*time.Second, r.h.Workers[1])
	r.fillUntil(r.h.Length, 90, func() time.Duration { return r.between(1*ms, 60*ms) }, 1<<30)
	last := len(r.h.Acquisitions) - 1
	r.h.Acquisitions[last-1].Token, r.h.Acquisitions[last].Token = math.MaxInt64, math.MinInt64
	r.h.Wrong = []history.Event{{Name: r.names[0], Worker: r.h.Workers[0], At: r.h.Acquisitions[last].Returned, ID: r.h.Acquisitions[last].ID, Text: "<q>text</q>"}}
	r.h.Judge(history.Rules{})
	return r.h
}

// down is a run in which no worker reaches the server.
func down() *history.History {
	r := newRun(5*time.Second, 3, 0, "unreachable")
	for _, w := range r.h.Workers {
		for at := time.Duration(0); at < r.h.Length; at += time.Second {
			r.h.Waits = append(r.h.Waits, history.Wait{Name: r.names[0], Worker: w, From: at, To: at + 900*ms, Text: "the server is unreachable"})
		}
	}
	r.fault("cut", "No host reaches the server", 0, r.h.Length)
	r.h.Judge(history.Rules{})
	return r.h
}

// crowd is a run of 32 workers on a lock that excludes nobody and on a shared one. Each worker holds
// both at the same time.
func crowd() *history.History {
	r := newRun(20*time.Second, 32, 0, "broken", "shared")
	for w := range r.h.Workers {
		for at := r.between(0, 100*ms); at < r.h.Length-time.Second; at += r.between(300*ms, 1500*ms) {
			r.acquire(w, "broken", at, at+r.between(1*ms, 50*ms), r.between(1*ms, 400*ms))
			r.acquire(w, "shared", at, at+r.between(1*ms, 50*ms), r.between(100*ms, 900*ms))
			a := &r.h.Acquisitions[len(r.h.Acquisitions)-1]
			a.Shared, a.Limit = true, 40
		}
	}
	r.h.Judge(history.Rules{})
	return r.h
}
