package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

const settle = 30 * time.Second

// settled is when a leader has resigned to a better candidate, and that one leads.
const settled = settle + 5*time.Second

// A leader resigns to a candidate of a better rank that has waited for the settle time, and stops
// before that one leads.
func TestLeaderResignsToABetterRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		th := &throne{t: t}
		second := start(store, election.Config{Rank: 1})
		var cause error
		a := second.run(func(ctx context.Context) error {
			defer func() { cause = context.Cause(ctx) }()
			return th.rule(ctx)
		})
		first := start(store.Client(), election.Config{})
		b := first.run(th.rule)
		time.Sleep(settle - 4*time.Second)
		wantState(t, second, election.Leading)
		time.Sleep(9 * time.Second)
		wantState(t, first, election.Leading)
		wantState(t, second, election.Campaigning)
		want(t, "the cause", cause, election.ErrResigned)
		time.Sleep(time.Hour) // a leader of the best rank stays
		wantState(t, first, election.Leading)
		b.cancel(nil)
		<-b.done
		wantState(t, second, election.Leading)
		a.cancel(nil)
		<-a.done
	})
}

// When a leader crashes, the best of those that wait leads next, wherever it is in the queue. The
// others do not begin their work.
func TestBestWaiterLeadsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		th := &throne{t: t}
		leader := start(store.Client(), election.Config{})
		a := leader.run(obey)
		var others []*running
		var all []*process
		for _, rank := range []int{7, 3, 7, 1, 1, 2} {
			p := start(store.Client(), election.Config{Rank: rank})
			all, others = append(all, p), append(others, p.run(th.rule))
		}
		leader.engine.Kill()
		time.Sleep(ttl + time.Second)
		wantState(t, all[3], election.Leading)
		if th.count() != 1 {
			t.Errorf("%d candidates have begun to work", th.count())
		}
		a.cancel(nil)
		<-a.done
		for _, r := range others {
			r.cancel(nil)
			<-r.done
		}
	})
}

// A candidate of a better rank that does not take the lock is not preferred again at once: its
// process may be frozen.
func TestFrozenCandidateIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		second := start(store, election.Config{Rank: 1})
		a := second.run(obey)
		first := start(store.Client(), election.Config{})
		b := first.run(obey)
		first.engine.Freeze()
		time.Sleep(settled)
		wantState(t, second, election.Leading)
		time.Sleep(settle)
		wantState(t, second, election.Leading)
		// It resigned once. Whether it had begun its work depends on the order of two goroutines.
		if got := strings.ReplaceAll(second.changes.String(), " stopping", ""); got != "campaigning leading campaigning leading" {
			t.Error(got)
		}
		first.engine.Thaw()
		time.Sleep(2 * settle)
		wantState(t, first, election.Leading)
		a.cancel(nil)
		<-a.done
		b.cancel(nil)
		<-b.done
	})
}

// A candidate that fails again and again, at once or after a while, by an error or by a crash, makes
// the leader change at most twice a minute, and more and more rarely.
func TestFailingCandidateDoesNotFlap(t *testing.T) {
	for what, fail := range map[string]struct {
		after time.Duration
		crash bool
	}{
		"at once": {after: 50 * time.Millisecond}, "soon": {after: time.Second}, "soon by a crash": {time.Second, true}, "late": {25 * time.Second, false},
	} {
		for _, apart := range []time.Duration{0, 1100 * time.Millisecond, 2300 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, %v apart", what, apart), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkFailing(t, apart, fail.after, fail.crash) })
			})
		}
	}
}

// checkFailing runs a failing candidate for four hours beside two others, which look at each other
// at times that are apart.
func checkFailing(t *testing.T, apart, after time.Duration, crash bool) {
	store := memlock.New(nil)
	var changes []time.Time
	change := func() { changes = append(changes, time.Now()) } // the terms do not overlap
	var others []*running
	for rank := range 2 {
		p := start(store.Client(), election.Config{Rank: rank + 1})
		others = append(others, p.run(func(ctx context.Context) error {
			change()
			return obey(ctx)
		}))
		time.Sleep(apart)
	}
	time.Sleep(time.Minute)
	for begun := time.Now(); time.Since(begun) < 4*time.Hour; {
		failOnce(t, store, after, crash, change)
	}
	for _, r := range slices.Backward(others) { // the leader last, so that no other one leads
		r.cancel(nil)
		<-r.done
	}
	if most := busiestMinute(changes); most > 2 {
		t.Errorf("the leader has changed %d times in a minute", most)
	}
	late := slices.DeleteFunc(slices.Clone(changes), func(c time.Time) bool { return time.Since(c) > 3*time.Hour })
	if len(changes) < 8 || len(late) > 20 {
		t.Errorf("the leader has changed %d times, %d times after the first hour", len(changes), len(late))
	}
	t.Logf("the leader has changed %d times, %d times after the first hour", len(changes), len(late))
}

// failOnce runs a candidate of the best rank, whose term ends soon, and then waits as a supervisor
// does before it starts another one.
func failOnce(t *testing.T, store *memlock.Engine, after time.Duration, crash bool, begun func()) {
	p := start(store.Client(), election.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour) // in case it never leads
	defer cancel()
	_ = p.Run(ctx, func(context.Context) error {
		begun()
		time.Sleep(after)
		if crash {
			p.engine.Kill()
		}
		return errors.New("failed")
	})
	time.Sleep(2 * time.Second)
}

// busiestMinute returns the most times in any minute.
func busiestMinute(times []time.Time) (most int) {
	for i, first := range times {
		n := 0
		for _, t := range times[i:] {
			if t.Sub(first) < time.Minute {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Over 200 crashes and returns of candidates of the ranks 0, 1 and 2, the best living one leads for
// nearly all the time, and no two lead at once.
func TestBestLivingCandidateLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		th := &throne{t: t}
		var candidates [3]*process
		var runs [3]*running
		begin := func(rank int) {
			candidates[rank] = start(store.Client(), election.Config{Rank: rank})
			runs[rank] = candidates[rank].run(th.rule)
		}
		for rank := range candidates {
			begin(2 - rank)
		}
		var good, all time.Duration
		wait := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				all += time.Second
				best := slices.IndexFunc(candidates[:], func(p *process) bool { return p != nil })
				if best < 0 || candidates[best].Term() != nil {
					good += time.Second
				}
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			rank := random.IntN(3)
			candidates[rank].engine.Kill()
			time.Sleep(ttl) // its context ends in this time
			runs[rank].cancel(nil)
			<-runs[rank].done
			candidates[rank] = nil
			wait(time.Duration(random.IntN(120)) * time.Second)
			begin(rank)
			wait(time.Duration(180+random.IntN(360)) * time.Second)
		}
		for rank := range runs {
			runs[rank].cancel(nil)
			<-runs[rank].done
		}
		t.Logf("%v of %v", good, all)
		if share := good.Seconds() / all.Seconds(); share < 0.95 {
			t.Errorf("the best living candidate led for %.1f %% of %v", 100*share, all)
		}
	})
}

// A leader does not resign to a waiter that is no candidate.
func TestRanksIgnoreOtherWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, election.Config{Rank: 1})
		r := p.run(obey)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { // ends with ctx
			_, _ = fencelock.New(store.Client(), nil).Acquire(ctx, name)
		}()
		time.Sleep(time.Hour)
		wantState(t, p, election.Leading)
		if got := p.changes.String(); got != "campaigning leading" {
			t.Error(got)
		}
		cancel()
		r.cancel(nil)
		<-r.done
	})
}

// A candidate with a minimum hold does not give way at once: the name would stay closed.
func TestRanksWithAMinimumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		leader := start(store.Client(), election.Config{})
		a := leader.run(obey)
		var others []*running
		var all []*process
		for _, rank := range []int{2, 1} {
			p := start(store.Client(), election.Config{})
			p.Candidate = election.New(p.locks.With(fencelock.Options{MinHold: time.Minute}), name, &election.Config{Rank: rank})
			all, others = append(all, p), append(others, p.run(obey))
		}
		a.cancel(nil)
		<-a.done
		wantState(t, all[0], election.Leading)
		time.Sleep(2 * time.Minute)
		wantState(t, all[1], election.Leading)
		for _, r := range others {
			r.cancel(nil)
			<-r.done
		}
	})
}

// The rank is part of the note, and not of the value.
func TestRankIsPublished(t *testing.T) {
	for note, cfg := range map[string]election.Config{
		"":                     {},
		"web1":                 {Value: "web1"},
		"web1 (rank 2)":        {Value: "web1", Rank: 2},
		"(rank 3)":             {Rank: 3},
		"x (rank 4) (rank 0)":  {Value: "x (rank 4)"},
		"(to web2) (rank 0)":   {Value: "(to web2)"},
		"(rank 1) (rank 5)":    {Value: "(rank 1)", Rank: 5},
		"x(rank 1)":            {Value: "x(rank 1)"},
		"(rank -1)":            {Value: "(rank -1)"},
		"(rank 99999999999)":   {Value: "(rank 99999999999)"},
		"web1 (rank 1) (rank)": {Value: "web1 (rank 1) (rank)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := start(memlock.New(nil), cfg)
			r := p.run(obey)
			s, _ := p.locks.Status(t.Context(), name)
			leader, err := election.Current(t.Context(), p.locks, name)
			if err != nil || s.Holders[0].Note != note || leader.Value != cfg.Value || leader.Rank != cfg.Rank {
				t.Errorf("%+v: note %q, leader %+v, %v", cfg, s.Holders[0].Note, leader, err)
			}
			r.cancel(nil)
			<-r.done
		})
	}
}

// A note in the context of a campaign does not replace the rank and the value.
func TestRankBesideANoteOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		second := start(store, election.Config{Rank: 1, Value: "two"})
		ctx, cancel := context.WithCancel(fencelock.WithNote(t.Context(), "request 7"))
		done := make(chan error, 1)
		go func() { done <- second.Run(ctx, obey) }() // ends with ctx
		synctest.Wait()
		if leader, err := election.Current(ctx, second.locks, name); err != nil || leader.Rank != 1 || leader.Value != "two" {
			t.Errorf("%+v, %v", leader, err)
		}
		first := start(store.Client(), election.Config{})
		r := first.run(obey)
		time.Sleep(settled)
		wantState(t, first, election.Leading)
		cancel()
		<-done
		r.cancel(nil)
		<-r.done
	})
}

func TestRanksAreChecked(t *testing.T) {
	for _, cfg := range []election.Config{{Rank: -1}, {Settle: -1}, {Settle: 31 * 24 * time.Hour}} {
		c := election.New(fencelock.New(memlock.New(nil), nil), name, &cfg)
		want(t, "Run", c.Run(t.Context(), obey), fencelock.ErrInvalid)
	}
}
