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

// A leader that is cut off has the grace to stop its work before another one leads.
func TestGrace(t *testing.T) {
	for what, c := range map[string]struct {
		grace  time.Duration // of the Locker
		takes  time.Duration // how long the work takes to stop
		beside bool          // whether the next leader begins meanwhile
	}{
		"a fifth of the TTL": {0, 1900 * time.Millisecond, false},
		"the Locker's":       {5 * time.Second, 4900 * time.Millisecond, false},
		"hardly any":         {1, 1900 * time.Millisecond, true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New(nil)
				engine := store.Client()
				a := election.New(fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl, Grace: c.grace}), name, nil)
				b := start(store, election.Config{})
				ctx, cancel := context.WithCancel(t.Context())
				stopped := make(chan struct{})
				first := make(chan error, 1)
				go func() { // ends with ctx
					first <- a.Run(ctx, func(ctx context.Context) error {
						<-ctx.Done()
						time.Sleep(c.takes)
						close(stopped)
						cancel()
						return context.Cause(ctx)
					})
				}()
				synctest.Wait()
				beside := false
				second := b.run(func(ctx context.Context) error {
					select {
					case <-stopped:
					default:
						beside = true
					}
					return obey(ctx)
				})
				engine.Refuse(errors.New("cut"))
				time.Sleep(2 * ttl)
				wantState(t, b, election.Leading)
				<-first
				second.cancel(nil)
				<-second.done
				if beside != c.beside {
					t.Errorf("the next leader began beside the work of the last: %v", beside)
				}
			})
		})
	}
}

// Depose ends the term of the leader that is there, and not that of the next one.
func TestDepose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		locks := fencelock.New(store.Client(), nil)
		_, _, err := election.Depose(t.Context(), locks, name, "nobody is there")
		want(t, "Depose", err, fencelock.ErrNotHeld)
		a, b := start(store, election.Config{Value: "a"}), start(store.Client(), election.Config{Value: "b"})
		first, second := a.run(obey), b.run(obey)
		term := a.Term().Token()
		leader, token, err := election.Depose(t.Context(), locks, name, "maintenance")
		if err != nil || leader.Value != "a" || leader.Term != term || token <= term {
			t.Errorf("%+v, %d, %v", leader, token, err)
		}
		wantState(t, b, election.Leading)
		wantState(t, a, election.Campaigning)
		if next := b.Term(); next == nil || next.Token() <= token {
			t.Errorf("the next term is %v, after %d", next, token)
		}
		_, err = locks.BreakOwner(t.Context(), name, leader.Owner, "once more")
		want(t, "the same leader again", err, fencelock.ErrNotHeld)
		wantState(t, b, election.Leading)
		first.cancel(nil)
		second.cancel(nil)
		<-first.done
		<-second.done
	})
}
