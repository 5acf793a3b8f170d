package election_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

// wholeEngine is what elections use of an engine.
type wholeEngine interface {
	driver.Engine
	driver.Lister
	driver.OwnerBreaker
}

// onHost is an engine whose requests come from another host.
type onHost struct {
	wholeEngine
	host string
}

func (e onHost) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Host = e.host
	return e.wholeEngine.Acquire(ctx, req)
}

func startOn(store *memlock.Engine, host string, cfg election.Config) *process {
	e := store.Client()
	p := &process{engine: e, locks: fencelock.New(onHost{e, host}, nil).With(fencelock.Options{TTL: ttl}), changes: &log{}}
	cfg.OnChange = func(c election.Change) { p.changes.add("%v", c.State) }
	p.Candidate = election.New(p.locks, name, &cfg)
	return p
}

// After a transfer the candidate on the given host leads, wherever it was in the queue and whatever
// its rank is, and no other one has begun to work. It stays the leader.
func TestTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		th := &throne{t: t, sudden: true}
		var all []*process
		var runs []*running
		for i, host := range []string{"web0", "web1", "web2", "web3", "web4"} {
			all = append(all, startOn(store, host, election.Config{Rank: i}))
			runs = append(runs, all[i].run(th.rule))
		}
		operator := fencelock.New(store.Client(), nil)
		leader, token, err := election.Transfer(t.Context(), operator, name, "web3", "maintenance")
		if err != nil || leader.Host != "web0" || token <= leader.Term {
			t.Errorf("%+v, %d, %v", leader, token, err)
		}
		time.Sleep(time.Hour)
		wantState(t, all[3], election.Leading)
		if s, _ := operator.Status(t.Context(), name); th.count() != 2 || len(s.Waiters) != 4 {
			t.Errorf("%d terms, %d candidates wait", th.count(), len(s.Waiters))
		}
		leader, token, err = election.Transfer(t.Context(), operator, name, "web3", "again")
		if err != nil || leader.Host != "web3" || token != leader.Term || th.count() != 2 {
			t.Errorf("%+v, %d, %v, %d terms", leader, token, err, th.count())
		}
		_, _, err = election.Transfer(t.Context(), operator, name, "web9", "nobody")
		want(t, "Transfer", err, election.ErrNoCandidate)
		wantState(t, all[3], election.Leading)
		all[3].Resign() // the ranks decide again
		wantState(t, all[0], election.Leading)
		for _, r := range runs {
			r.cancel(nil)
			<-r.done
		}
	})
}

// If the candidate does not take the lock, another one leads, and Transfer returns when its context
// ends.
func TestTransferToAFrozenCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var all []*process
		var runs []*running
		for i, host := range []string{"web0", "web1", "web2"} {
			all = append(all, startOn(store, host, election.Config{}))
			runs = append(runs, all[i].run(obey))
		}
		all[2].engine.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, token, err := election.Transfer(ctx, fencelock.New(store.Client(), nil), name, "web2", "maintenance")
		want(t, "Transfer", err, context.DeadlineExceeded)
		if token == 0 {
			t.Error("no token")
		}
		if (all[0].Term() == nil) == (all[1].Term() == nil) {
			t.Error("not one of them leads")
		}
		all[2].engine.Thaw()
		for _, r := range runs {
			r.cancel(nil)
			<-r.done
		}
	})
}

// A candidate that has failed before is not preferred for its rank for a while, but an operator gets
// what it asks for: also of a candidate that was restarted soon after an earlier transfer.
func TestTransferToACandidateThatHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var all []*process
		var runs []*running
		for i, host := range []string{"web0", "web1", "web2"} {
			all = append(all, startOn(store, host, election.Config{Rank: i}))
			runs = append(runs, all[i].run(obey))
		}
		operator := fencelock.New(store.Client(), nil)
		for range 3 {
			ctx, cancel := context.WithTimeout(fencelock.WithNote(t.Context(), "of the caller"), settle)
			_, _, err := election.Transfer(ctx, operator, name, "web2", "maintenance")
			cancel()
			if err != nil {
				t.Error(err)
			}
			wantState(t, all[2], election.Leading)
			runs[2].cancel(nil)
			<-runs[2].done
			time.Sleep(time.Second)
			wantState(t, all[0], election.Leading)
			all[2] = startOn(store, "web2", election.Config{Rank: 2})
			runs[2] = all[2].run(obey)
			time.Sleep(time.Second)
		}
		for _, r := range runs {
			r.cancel(nil)
			<-r.done
		}
	})
}

// meddling is an engine on which something happens before each acquisition and each break.
type meddling struct {
	wholeEngine
	before, beforeBreak func()
}

func (e meddling) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	e.beforeBreak()
	return e.wholeEngine.BreakOwner(ctx, name, owner, reason)
}

func (e meddling) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	e.before()
	return e.wholeEngine.Acquire(ctx, req)
}

// The leader resigns while a transfer begins, before the request or at the last moment, and the next
// one is on the given host. It stays, and nobody is deposed.
func TestTransferToANewLeader(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New(nil)
			th := &throne{t: t}
			var all []*process
			var runs []*running
			for _, host := range []string{"web0", "web1"} {
				all = append(all, startOn(store, host, election.Config{}))
				runs = append(runs, all[len(all)-1].run(th.rule))
			}
			resign := sync.OnceFunc(func() {
				all[0].Resign()
				time.Sleep(100 * time.Millisecond)
			})
			engine := meddling{store.Client(), resign, func() {}}
			if late {
				engine.before, engine.beforeBreak = func() {}, resign
			}
			leader, token, err := election.Transfer(t.Context(), fencelock.New(engine, nil), name, "web1", "maintenance")
			if term := all[1].Term(); err != nil || term == nil || leader.Host != "web1" || token != term.Token() || th.count() != 2 {
				t.Errorf("%+v, %d, %v, %d terms", leader, token, err, th.count())
			}
			for _, r := range runs {
				r.cancel(nil)
				<-r.done
			}
		})
	}
}

// A candidate that does not see what is asked for leads first. The transfer deposes it as well.
func TestTransferDeposesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		leader, runs := startOn(store, "web0", election.Config{}), []*running{}
		runs = append(runs, leader.run(obey))
		blind := &process{changes: &log{}}
		blind.Candidate = election.New(fencelock.New(unlisted{onHost{store.Client(), "web1"}}, nil).With(fencelock.Options{TTL: ttl}), name, nil)
		runs = append(runs, blind.run(obey))
		next := startOn(store, "web2", election.Config{})
		runs = append(runs, next.run(obey))
		began := time.Now()
		_, _, err := election.Transfer(t.Context(), fencelock.New(store.Client(), nil), name, "web2", "maintenance")
		if took := time.Since(began); err != nil || took > 10*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		wantState(t, next, election.Leading)
		for _, r := range runs {
			r.cancel(nil)
			<-r.done
		}
	})
}

// unlisted is an engine that lists no waiters.
type unlisted struct{ onHost }

func (e unlisted) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	all, err := e.onHost.List(ctx, q)
	for i := range all {
		all[i].Waiters = nil
	}
	return all, err
}

// The candidate that a transfer is for stops before it leads. The transfer does not depose the leader
// that was elected instead.
func TestTransferWithoutItsCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, th := memlock.New(nil), &throne{t: t, sudden: true}
		runs := []*running{startOn(store, "web0", election.Config{}).run(th.rule)}
		blind := &process{changes: &log{}}
		blind.Candidate = election.New(fencelock.New(unlisted{onHost{store.Client(), "web1"}}, nil).With(fencelock.Options{TTL: ttl}), name, nil)
		runs = append(runs, blind.run(th.rule), startOn(store, "web2", election.Config{}).run(th.rule))
		time.AfterFunc(time.Second, func() { runs[2].cancel(nil) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _, err := election.Transfer(ctx, fencelock.New(store.Client(), nil), name, "web2", "maintenance")
		want(t, "Transfer", err, context.DeadlineExceeded)
		wantState(t, blind, election.Leading)
		if th.count() != 2 {
			t.Errorf("%d terms, want 2", th.count())
		}
		for _, r := range runs {
			r.cancel(nil)
			<-r.done
		}
	})
}
