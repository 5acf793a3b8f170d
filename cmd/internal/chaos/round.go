//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

const (
	closedFor     = 10               // TTLs: how long a lock that is wanted may have no holder, without a fault
	closedHunting = 3                // the same in the short rounds in which something is to be found
	slack         = 10 * time.Second // how late a busy machine may be
	search        = 2 * time.Second  // for an order in which the locks could have been granted
)

// A round is one plan, carried out.
type round struct {
	*Arena
	ctx    context.Context // its end ends the faults
	dir    string
	seed   uint64
	origin time.Duration
	crew   []*member
	births uint64
	events *history.Writer // of the harness
	paused map[int]int     // servers that stand still, by how many faults
	moving func()          // ends the move of a slot; nil if there is none

	lateUntil time.Duration // when all that is under way has been delivered
}

// Round carries out a plan, and returns what came of it, judged. If ctx ends, the round ends early, in
// order.
func (a *Arena) Round(ctx context.Context, seed uint64, faults []Fault, length time.Duration) *history.History {
	dir, err := os.MkdirTemp(hosttest.DataRoot(), "fencelock-chaos-")
	if err != nil {
		a.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	events, err := history.Create(dir, "")
	if err != nil {
		a.t.Fatal(err)
	}
	defer events.Close()
	r := &round{Arena: a, ctx: ctx, dir: dir, events: events, seed: seed, paused: map[int]int{}, crew: make([]*member, a.Workers)}
	defer r.killAll()
	for i := range a.Workers {
		r.launch(i)
	}
	r.awaitWorkers()
	r.origin = history.Now()
	r.record(history.Event{At: r.origin, Kind: history.Start})
	r.carryOut(faults, length)
	if a.servers.settle != nil && ctx.Err() == nil {
		a.servers.settle()
	}
	length = min(length, history.Now()-r.origin)
	orderly := (sabotages[a.Sabotage].orderly || !a.Hunting && seed%2 == 0) && r.endInOrder()
	r.killAll()
	var slowest string
	var free, bound time.Duration
	if ctx.Err() == nil && (!a.Hunting || orderly) {
		bound = a.TTL + a.extra() + time.Second // of locks whose holders have died
		if orderly {
			bound = minimumOf(a.TTL) + a.TTL/4
		}
		slowest, free = r.awaitFree(bound)
		if !a.Hunting {
			bound += slack
		}
	}
	h := r.judge(length)
	if h.Free = free; free > bound {
		text := fmt.Sprintf("%s was closed for %v after the end of all workers (in order: %t); the bound is %v", slowest, free.Round(time.Microsecond), orderly, bound)
		h.Violations = append(h.Violations, history.Violation{Rule: history.ClosedName, Name: slowest, At: length, Text: text})
	}
	r.Live.Violations.Add(int64(len(h.Violations)))
	return h
}

// carryOut injects the faults at their times. If the context ends, it ends those that have begun.
func (r *round) carryOut(faults []Fault, length time.Duration) {
	var steps []step
	for _, f := range faults {
		steps = append(steps, r.steps(f)...)
	}
	steps = append(append(steps, r.tending(length)...), step{at: length, do: func() {}})
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	for _, s := range steps {
		if r.sleep(r.origin+s.at) || s.ends {
			s.do()
		}
	}
	r.sleep(r.lateUntil)
}

// sleep sleeps until a time, or until the round is to end early. Then it returns false.
func (r *round) sleep(until time.Duration) bool {
	select {
	case <-time.After(until - history.Now()):
		return r.ctx.Err() == nil
	case <-r.ctx.Done():
		return false
	}
}

// began records a fault, and when all that it has delayed must have arrived.
func (r *round) began(f Fault) {
	at := history.Now()
	r.Live.Faults.Add(1)
	e := history.Event{At: at, Kind: history.Injected, ID: fmt.Sprint("fault at ", at), Name: f.What, Text: f.text(), Server: f.at()}
	if e.Server == "" {
		e.Workers = []string{lane(f.worker)}
	}
	r.record(e)
	r.record(history.Event{At: at + f.length + max(f.by, 0), Kind: history.Healed, ID: e.ID})
}

// record records an event of the harness.
func (r *round) record(e history.Event) {
	if err := r.events.Write(e); err != nil {
		r.t.Errorf("seed %d: %v", r.seed, err)
	}
}

// judge reads what the workers have recorded.
func (r *round) judge(length time.Duration) *history.History {
	h, err := history.Read(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	h.Engine, h.Seed, h.TTL, h.Length = r.Own.Name, r.seed, r.TTL, length
	h.Started = time.Now().Add(r.origin - history.Now())
	happened := func(what ...string) bool {
		return slices.ContainsFunc(h.Faults, func(f history.Fault) bool { return slices.Contains(what, f.What) })
	}
	closed := closedFor * r.TTL
	if r.Hunting {
		closed = closedHunting * r.TTL
	}
	h.Judge(history.Rules{
		TwoHolders:     r.kind.overlaps || happened(r.kind.unsafe...), // as the engine's page says
		IgnoreMinHolds: r.ahead != 0 || happened(clock, back),         // they end early or late, as the page says
		Closed:         closed + r.kind.places, Search: search,
		// A server that has restarted may have to wait, and a grant that a worker did not receive closes
		// a name for a TTL.
		Recovery: r.TTL + r.extra(),
	})
	for _, a := range h.Acquisitions {
		if floor := r.floors[a.Name]; a.Token <= floor && a.Until != 0 {
			text := fmt.Sprintf("%v was granted %s, and a token of an earlier round is %d", a, a.Name, floor)
			h.Violations = append(h.Violations, history.Violation{Rule: history.TokenOrder, Name: a.Name, At: a.Returned, After: a.ID, Text: text})
		}
	}
	for _, a := range h.Acquisitions {
		r.floors[a.Name] = max(r.floors[a.Name], a.Token)
	}
	return h
}
