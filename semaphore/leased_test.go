package semaphore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// A process that is killed gives its permits back when its TTL ends, and no later.
func TestPermitsOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		dead, alive := start(store, 5), start(store, 5)
		for range 4 {
			dead.take(t, 1)
		}
		stays := alive.take(t, 1)
		time.Sleep(25 * time.Second)
		dead.engine.Kill()
		killed := time.Now()
		w := start(store, 5).queue(t.Context(), 4)
		<-w.done
		if took := w.at.Sub(killed); w.err != nil || took > ttl || took < ttl/3 {
			t.Errorf("got in after %v, %v", took, w.err)
		}
		if err := stays.Err(); err != nil {
			t.Errorf("the permit of the other: %v", err)
		}
		wantStatus(t, alive.Semaphore, 5, 5, 0)
	})
}

// A waiter that is killed keeps nobody behind it waiting.
func TestWaitersThatDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, 5)
		p.take(t, 1)
		dying := start(store, 5)
		heavy, light := dying.queue(t.Context(), 5), start(store, 5).queue(t.Context(), 1)
		wantThrough(t, []*waiting{heavy, light}, false, false)
		dying.engine.Kill()
		wantThrough(t, []*waiting{heavy, light}, true, true)
		want(t, "the dead", heavy.err, fencelock.ErrUnavailable)
	})
}

// The context of a process that is cut off ends before others get its permit.
func TestPermitsOfTheFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		frozen := start(store, 5)
		permit := frozen.take(t, 3)
		frozen.engine.Freeze()
		w := start(store, 5).queue(t.Context(), 5)
		<-permit.Context().Done()
		ended := time.Now()
		want(t, "the cause", context.Cause(permit.Context()), fencelock.ErrLost)
		want(t, "Err", permit.Err(), fencelock.ErrLost)
		<-w.done
		if !w.at.After(ended) || w.permit.Floor() <= permit.Token() {
			t.Errorf("got in %v after the end, with floor %d above token %d", w.at.Sub(ended), w.permit.Floor(), permit.Token())
		}
		frozen.engine.Thaw()
		want(t, "Release", permit.Release(), fencelock.ErrNotHeld)
		wantStatus(t, frozen.Semaphore, 5, 5, 0)
	})
}

// An old permit that goes on keeps the floor down: fencing alone does not tell a
// lost permit from a younger one that stands.
func TestTheFloorOfThePermitsThatStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p, dead := start(store, 5), start(store, 5)
		old := p.take(t, 1)
		lost := dead.take(t, 1)
		dead.engine.Kill()
		time.Sleep(2 * ttl)
		if next := p.take(t, 1); next.Floor() != old.Token() {
			t.Errorf("floor %d, want %d", next.Floor(), old.Token())
		}
		release(t, old)
		if next := p.take(t, 1); next.Floor() <= lost.Token() {
			t.Errorf("floor %d lets token %d in", next.Floor(), lost.Token())
		}
	})
}

// Cuts, freezes, restarts and new sizes at random: never more than were allowed, and
// in the end all of it is there again.
func TestNothingLeaks(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 5))
			store, in := memlock.New(nil), &room{}
			ctx, cancel := context.WithCancel(t.Context())
			var all []*process
			var work sync.WaitGroup
			for i := range 12 {
				p := start(store, 5)
				all = append(all, p)
				work.Go(func() { p.work(ctx, in, 1+i%3) })
			}
			for range 100 {
				time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
				switch p := all[rnd.IntN(len(all))]; rnd.IntN(4) {
				case 0:
					p.engine.Refuse(errors.New("rehearsal"))
					time.AfterFunc(time.Duration(rnd.IntN(20))*time.Second, func() { p.engine.Refuse(nil) })
				case 1:
					p.engine.Freeze()
					time.AfterFunc(time.Duration(rnd.IntN(20))*time.Second, p.engine.Thaw)
				case 2:
					if err := start(store, 5).Resize(ctx, 3+rnd.IntN(3)); err != nil {
						t.Error(err)
					}
				default:
					store.Restart()
				}
			}
			time.Sleep(3 * ttl)
			cancel()
			work.Wait()
			if in.most > 5 || in.times < 100 {
				t.Errorf("seed %d: %d at once, %d times", seed, in.most, in.times)
			}
			time.Sleep(2 * ttl) // what was frozen in a release
			after := start(store, 5)
			if err := after.Resize(t.Context(), 5); err != nil {
				t.Error(err)
			}
			release(t, after.take(t, 5))
		})
	}
}

// work takes permits until ctx ends. It leaves the room when its permit ends.
func (p *process) work(ctx context.Context, in *room, weight int) {
	for ctx.Err() == nil {
		_ = p.Do(ctx, weight, func(ctx context.Context) error {
			in.enter(weight)
			defer in.leave(weight)
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(weight) * 300 * time.Millisecond):
			}
			return nil
		})
		time.Sleep(100 * time.Millisecond)
	}
}

// What cannot be returned to an engine that is away comes back with the TTL.
func TestReleaseWhileTheEngineIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, 5)
		permit := p.take(t, 5)
		p.engine.Refuse(errors.New("no route"))
		want(t, "Release", permit.Release(), fencelock.ErrUnavailable)
		_, err := p.TryAcquire(t.Context(), 1)
		want(t, "TryAcquire", err, fencelock.ErrUnavailable)
		want(t, "Resize", p.Resize(t.Context(), 3), fencelock.ErrUnavailable)
		_, err = p.Status(t.Context())
		want(t, "Status", err, fencelock.ErrUnavailable)
		w := start(store, 5).queue(t.Context(), 5)
		<-w.done
		if w.err != nil {
			t.Error(w.err)
		}
	})
}
