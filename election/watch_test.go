package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

// OnLeader receives every change of who leads, from one goroutine, and nothing after Run.
func TestOnLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var heard log
		watcher := start(store.Client(), election.Config{Value: "watcher", OnLeader: func(l election.Leader) {
			if l.Owner != "" { // whether it is seen that nobody leads for a moment is a matter of chance
				heard.add("%q", l.Value)
			}
		}})
		leader := start(store.Client(), election.Config{Value: "leader"})
		a := leader.run(obey)
		b := watcher.run(obey)
		wantHeard := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := heard.String(); got != want {
				t.Errorf("heard %s, want %s", got, want)
			}
		}
		wantHeard(`"leader"`)
		a.cancel(nil)
		<-a.done
		wantHeard(`"leader" "watcher"`)
		watcher.engine.Refuse(errors.New("cut")) // its own term ends, and it knows nothing of others
		time.Sleep(time.Minute)
		wantHeard(`"leader" "watcher"`)
		watcher.engine.Refuse(nil)
		time.Sleep(time.Minute)
		wantHeard(`"leader" "watcher" "watcher"`)
		b.cancel(nil)
		<-b.done
		c := leader.run(obey)
		time.Sleep(time.Minute)
		c.cancel(nil)
		<-c.done
		wantHeard(`"leader" "watcher" "watcher"`)
	})
}

// While nobody leads, OnLeader has received the zero Leader. Run waits for a call that is active.
func TestOnLeaderWhileNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		job := fencelock.New(store.Client(), nil).With(fencelock.Options{MinHold: time.Minute})
		if err := job.Do(t.Context(), name, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		called := make(chan election.Leader)
		p := start(store.Client(), election.Config{OnLeader: func(l election.Leader) {
			called <- l
			time.Sleep(time.Second)
		}})
		r := p.run(obey)
		if l := <-called; l.Owner != "" {
			t.Errorf("%+v leads", l)
		}
		begun := time.Now()
		r.cancel(nil)
		<-r.done
		if took := time.Since(begun); took != time.Second {
			t.Errorf("Run has returned after %v", took)
		}
	})
}
