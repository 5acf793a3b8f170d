package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

// observe collects what an observer sees, until cancel.
func observe(locks *fencelock.Locker) (seen *log, cancel func() error) {
	ctx, stop := context.WithCancel(context.Background())
	seen = &log{}
	done := make(chan error, 1)
	go func() { // ends with cancel
		var last error
		for leader, err := range election.Observe(ctx, locks, name) {
			if last = err; err == nil {
				seen.add("%s%s", leader.Value, map[bool]string{true: "nobody"}[leader.Owner == ""])
			}
		}
		done <- last
	}()
	synctest.Wait()
	return seen, func() error { stop(); return <-done }
}

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		watcher := fencelock.New(store.Client(), nil)
		seen, stop := observe(watcher)
		a := start(store.Client(), election.Config{Value: "a:1"})
		b := start(store.Client(), election.Config{Value: "b:2"})
		first, second := a.run(obey), b.run(obey)
		leader, err := election.Current(t.Context(), watcher, name)
		if err != nil || leader.Value != "a:1" || leader.Term != a.Term().Token() || leader.Since.IsZero() || leader.PID == 0 {
			t.Errorf("%+v, %v", leader, err)
		}
		first.cancel(nil)
		<-first.done
		wantState(t, b, election.Leading)
		second.cancel(nil)
		<-second.done
		time.Sleep(time.Minute)
		want(t, "Observe", stop(), context.Canceled)
		if got := seen.String(); got != "nobody a:1 b:2 nobody" {
			t.Error(got)
		}
	})
}

// An observer rides out a short silence of the engine and reports a long one.
func TestObserveAnEngineThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		eyes := store.Client()
		seen, stop := observe(fencelock.New(eyes, nil))
		eyes.Refuse(errors.New("no route"))
		p := start(store, election.Config{Value: "a:1"})
		r := p.run(obey)
		time.Sleep(20 * time.Second)
		eyes.Refuse(nil)
		time.Sleep(10 * time.Second)
		if got := seen.String(); got != "nobody a:1" {
			t.Error(got)
		}
		eyes.Refuse(errors.New("no route"))
		time.Sleep(time.Minute)
		want(t, "Observe", stop(), fencelock.ErrUnavailable)
		r.cancel(nil)
		<-r.done
	})
}

// An engine that is silent is reported 30 s after it was first asked in vain, however long it
// takes to say that it has no answer. That it was not asked for a while, as by a process that
// stood still, says nothing about it.
func TestObserveASilentEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		var asked time.Time
		for _, err := range election.Observe(t.Context(), fencelock.New(store.Client(), nil), name) {
			if err == nil {
				asked = time.Now().Add(time.Second) // the next time
				store.Hang()
				continue
			}
			if took := time.Since(asked); took != 30*time.Second || !errors.Is(err, fencelock.ErrUnavailable) {
				t.Errorf("%v after %v", err, took)
			}
		}
		begun := time.Now()
		for _, err := range election.Observe(t.Context(), fencelock.New(store.Client(), nil), name) {
			if took := time.Since(begun); took != 30*time.Second || !errors.Is(err, fencelock.ErrUnavailable) {
				t.Errorf("without an answer: %v after %v", err, took)
			}
		}
		store.Resume()
	})
}

// strange lists a holder that the engine knows nothing of, as PostgreSQL does between
// the lock of a new leader and the row that says who it is.
type strange struct{ *memlock.Engine }

func (strange) List(context.Context, driver.Query) ([]driver.Status, error) {
	return []driver.Status{{Name: name, Holders: []driver.Holder{{Foreign: true, Identity: driver.Identity{PID: 1}, Since: time.Now()}}}}, nil
}

func TestALeaderHasAnOwner(t *testing.T) {
	leader, err := election.Current(t.Context(), fencelock.New(strange{memlock.New(nil)}, nil), name)
	if err != nil || leader != (election.Leader{}) {
		t.Errorf("%+v, %v", leader, err)
	}
}

func TestObserveStopsWithItsLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for leader, err := range election.Observe(t.Context(), fencelock.New(memlock.New(nil), nil), name) {
			if err != nil || leader != (election.Leader{}) {
				t.Errorf("%+v, %v", leader, err)
			}
			break
		}
	})
}

func TestObserveNeedsAList(t *testing.T) {
	locks := fencelock.New(struct{ driver.Engine }{memlock.New(nil)}, nil)
	for _, err := range election.Observe(t.Context(), locks, name) {
		want(t, "Observe", err, fencelock.ErrUnsupported)
	}
}

// blind cannot see who holds a name.
type blind struct{ *memlock.Engine }

func (blind) List(context.Context, driver.Query) ([]driver.Status, error) {
	return []driver.Status{{Name: name, Trouble: errors.New("too many open files")}}, nil
}

// A leader that cannot be seen is not the same as none.
func TestALeaderThatCannotBeSeen(t *testing.T) {
	locks := fencelock.New(blind{memlock.New(nil)}, nil)
	_, err := election.Current(t.Context(), locks, name)
	want(t, "Current", err, fencelock.ErrUnavailable)
	_, _, err = election.Depose(t.Context(), locks, name, "maintenance")
	want(t, "Depose", err, fencelock.ErrUnavailable)
}
