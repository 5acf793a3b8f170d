package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/lab/evidence"
)

// patience is how long a trial waits for the holder's signal, and for a successor.
const patience = 45 * time.Second

// A trial is one way to take a lock from its holder.
type trial string

const (
	frozen      trial = "frozen"      // the holder's process is stopped until a second after the takeover
	partitioned trial = "partitioned" // what the holder sends and receives is lost; its connections stay open
	restarted   trial = "restarted"   // every server is killed and started again
)

// lose makes a holder and a waiting successor, both in processes of their own, plays the fault, and
// returns when the lock passed to the successor and when the holder's library reported the loss. The
// phase delays the fault, so that it is at another time between two renewals.
func lose(b *bed, kind string, ttl time.Duration, t trial, phase time.Duration) evidence.Comparison {
	p := b.place(kind, ttl)
	a := b.worker(p.proxied, "job")
	b.acquired(a, 30*time.Second)
	next := b.worker(p.direct, "job")
	time.Sleep(ttl/3 + 500*time.Millisecond + phase) // the successor waits, and the holder has renewed once
	begun := now()
	switch t {
	case frozen:
		a.freeze(b)
	case partitioned:
		for _, proxy := range p.proxies {
			proxy.Drop(faults.Both)
		}
	case restarted:
		p.restart()
	}
	taken, took := next.wait("acquired", patience)
	thawed := begun
	if t == frozen {
		time.Sleep(time.Second)
		thawed = now()
		a.thaw(b)
	}
	lost, signalled := a.wait("lost", max(time.Second, patience-(now()-begun)))
	return compare(evidence.Comparison{Scenario: string(t), Subject: kind, TTL: millis(ttl)}, begun, thawed, taken, took, lost, signalled)
}

// compare computes a comparison from what was seen.
func compare(c evidence.Comparison, begun, thawed time.Duration, taken event, took bool, lost event, signalled bool) evidence.Comparison {
	c.Takeover, c.Signal = -1, -1
	if took {
		c.Takeover = millis(taken.At - begun)
	}
	if signalled {
		c.Signal = millis(lost.At - begun)
	}
	end := now()
	if signalled {
		end = lost.Last
	}
	switch {
	case !took && !signalled:
		c.Seen = "the holder keeps the lock"
	case !took:
		c.Seen = "nobody takes over"
	default:
		overlap := end - taken.At
		c.Overlap = millis(overlap)
		if overlap < 0 {
			c.Seen = fmt.Sprintf("last held %s before the takeover", round(-overlap))
		} else {
			c.Seen = fmt.Sprintf("both hold for %s", atLeast(overlap, signalled))
		}
		if thawed != begun && signalled {
			c.Seen += fmt.Sprintf("; the loss is reported %s after the thaw", round(lost.At-thawed))
		}
	}
	return c
}

// atLeast is d, of which the trial has seen the end or not.
func atLeast(d time.Duration, ended bool) string {
	if ended {
		return round(d)
	}
	return "more than " + round(d)
}

// overlapping is a fault in which the holder and its successor both hold. How long depends on when
// the holder has last renewed, so the worst of some runs counts.
func overlapping(kind string, ttl time.Duration, t trial, ours string, runs int) func(*bed) []finding {
	return func(b *bed) (found []finding) {
		for _, subject := range []string{kind, ours} {
			c, err := worst(subject, ttl, t, runs)
			b.must(err)
			if c.Takeover < 0 {
				b.Fatalf("%s: %s", subject, c.Seen)
			}
			if runs > 1 {
				c.Seen += fmt.Sprintf(", in the worst of %d runs", runs)
			}
			found = append(found, finding{
				subject: subject, shows: c.Overlap > 50, wanted: subject == kind, seen: c.Seen,
				took: time.Duration(c.Overlap) * time.Millisecond,
			})
		}
		return found
	}
}

// contestants are the libraries of the comparison.
var contestants = []struct {
	kind string
	ttl  time.Duration
}{
	{"fencelock, Redis", 5 * time.Second},
	{"fencelock, Redis, quarantine", 5 * time.Second},
	{"fencelock, Redlock", 5 * time.Second},
	{"fencelock, PostgreSQL", 5 * time.Second},
	{"redsync", 5 * time.Second},
	{"redsync, checking Until", 5 * time.Second},
	{"bsm/redislock", 5 * time.Second},
	{"rueidislock", 5 * time.Second},
	{"etcd mutex", 5 * time.Second},
	{"river leader", riverTTL},
}

// worst plays a trial several times and returns the run with the smallest margin.
func worst(kind string, ttl time.Duration, t trial, runs int) (least evidence.Comparison, err error) {
	for i := range runs {
		var r evidence.Comparison
		phase := ttl / 3 * time.Duration(i) / time.Duration(runs)
		if err := inBed(func(b *bed) { r = lose(b, kind, ttl, t, phase) }); err != nil {
			return r, err
		}
		if i == 0 || r.Takeover >= 0 && (least.Takeover < 0 || r.Overlap > least.Overlap) {
			least = r
		}
	}
	least.Runs = runs
	return least, nil
}

// compareAll plays every trial with every contestant, the trials side by side, and writes the file if
// there is one.
func compareAll(kinds []string, runs int, file string) error {
	begun := time.Now()
	trials := []trial{frozen, partitioned, restarted}
	results, errs := make([][]evidence.Comparison, len(trials)), make([]error, len(trials))
	var all sync.WaitGroup
	for i, t := range trials {
		all.Go(func() { results[i], errs[i] = compareLibraries(kinds, runs, t) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil || file == "" {
		return err
	}
	return evidence.Write(file, evidence.Report{
		Header:      evidence.NewHeader("go run -C lab ./bench/peers -compare", begun, versions()),
		Comparisons: slices.Concat(results...),
	})
}

// compareLibraries plays one trial with every contestant, one after the other.
func compareLibraries(kinds []string, runs int, t trial) (results []evidence.Comparison, err error) {
	for _, c := range contestants {
		if len(kinds) > 0 && !slices.Contains(kinds, c.kind) {
			continue
		}
		r, err := worst(c.kind, c.ttl, t, runs)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", t, c.kind, err)
		}
		fmt.Printf("%-11s %-30s takeover %6d ms, signal %6d ms: %s\n", t, r.Subject, r.Takeover, r.Signal, r.Seen)
		results = append(results, r)
	}
	return results, nil
}
