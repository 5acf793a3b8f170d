package semaphore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// Made smaller, nobody is thrown out and nobody gets in until enough have left.
func TestResizeDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, 5)
		one, two, three, four := p.take(t, 1), p.take(t, 1), p.take(t, 1), p.take(t, 2)
		w := []*waiting{start(store, 5).queue(t.Context(), 1)}
		if err := start(store, 5).Resize(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, p.Semaphore, 2, 5, 1)
		time.Sleep(10 * ttl)
		release(t, four)
		wantThrough(t, w, false)
		release(t, three)
		wantThrough(t, w, false)
		wantStatus(t, p.Semaphore, 2, 2, 1)
		release(t, two)
		wantThrough(t, w, true)
		wantStatus(t, p.Semaphore, 2, 2, 0)
		release(t, one, w[0].permit)
	})
}

// Made larger, those who fit get in at once, in their order.
func TestResizeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, 3)
		p.take(t, 3)
		var all []*waiting
		for _, weight := range []int{1, 2, 3, 1} {
			all = append(all, start(store, 3).queue(t.Context(), weight))
		}
		if err := p.Resize(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		wantThrough(t, all, true, false, false, false)
		if err := p.Resize(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
		wantThrough(t, all, true, true, false, false)
		wantStatus(t, p.Semaphore, 8, 6, 2)
		if err := p.Resize(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		wantThrough(t, all, true, true, true, true)
		wantStatus(t, p.Semaphore, 100, 10, 0)
	})
}

// A permit heavier than the size that was lowered after it was made gets in alone.
func TestHeavierThanALoweredSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, 5)
		if err := p.Resize(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		light := p.take(t, 1)
		all := []*waiting{start(store, 5).queue(t.Context(), 4), start(store, 5).queue(t.Context(), 1)}
		wantThrough(t, all, false, false)
		release(t, light)
		wantThrough(t, all, true, false)
		wantStatus(t, p.Semaphore, 2, 4, 1)
		_, err := p.TryAcquire(t.Context(), 1)
		want(t, "beside it", err, fencelock.ErrHeld)
		release(t, all[0].permit)
		wantThrough(t, all, true, true)
	})
}

// It holds for processes that come later and for a semaphore that was empty.
func TestResizeLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		if err := start(store, 5).Resize(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1000 * time.Hour)
		store.Restart()
		late := start(store, 5)
		wantStatus(t, late.Semaphore, 5, 0, 0) // nobody is there to tell
		release(t, late.take(t, 1))
		permit := late.take(t, 2)
		wantStatus(t, late.Semaphore, 2, 2, 0)
		_, err := late.TryAcquire(t.Context(), 1)
		want(t, "a permit too many", err, fencelock.ErrHeld)
		release(t, permit)
	})
}
