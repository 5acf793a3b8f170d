package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/semaphore"
)

func TestPermitsUpToTheSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		a, b := start(store, 5), start(store, 5)
		wantStatus(t, a.Semaphore, 5, 0, 0)
		first, second := a.take(t, 0), b.take(t, 3)
		wantStatus(t, a.Semaphore, 5, 4, 0)
		if first.Name() != name {
			t.Errorf("name %q", first.Name())
		}
		if second.Token() <= first.Token() || second.Floor() != first.Token() {
			t.Errorf("tokens %d and %d, floor %d", first.Token(), second.Token(), second.Floor())
		}
		_, err := b.TryAcquire(t.Context(), 2)
		held, ok := errors.AsType[*fencelock.HeldError](err)
		if !ok || held.Owner != first.Owner() {
			t.Errorf("a permit too many: %v", err)
		}
		third := b.take(t, 1)
		wantStatus(t, b.Semaphore, 5, 5, 0)
		release(t, second)
		wantStatus(t, b.Semaphore, 5, 2, 0)
		release(t, first, third)
		release(t, start(store, 5).take(t, 5))
		wantStatus(t, b.Semaphore, 5, 0, 0)
	})
}

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), 5)
		broken := errors.New("broken")
		want(t, "Do", p.Do(t.Context(), 2, func(ctx context.Context) error {
			token, ok := fencelock.TokenFrom(ctx)
			if held, err := fence.From(ctx); !ok || token <= 0 || held != (fence.Fence{Name: name, Token: token, Floor: token}) {
				t.Errorf("token %d, held %+v, %v", token, held, err)
			}
			wantStatus(t, p.Semaphore, 5, 2, 0)
			return broken
		}), broken)
		want(t, "Do", p.Do(t.Context(), 0, func(ctx context.Context) error {
			wantStatus(t, p.Semaphore, 5, 1, 0)
			p.engine.Lose(name)
			<-ctx.Done()
			want(t, "the cause", context.Cause(ctx), fencelock.ErrLost)
			return nil
		}), fencelock.ErrLost)
		func() {
			defer func() { _ = recover() }()
			_ = p.Do(t.Context(), 5, func(context.Context) error { panic("oops") })
		}()
		wantStatus(t, p.Semaphore, 5, 0, 0)
	})
}

func TestTryDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ran, broken := start(memlock.New(nil), 5), 0, errors.New("broken")
		want(t, "TryDo", p.TryDo(t.Context(), 3, func(ctx context.Context) error {
			ran++
			wantStatus(t, p.Semaphore, 5, 3, 0)
			want(t, "one too many", p.TryDo(ctx, 3, func(context.Context) error { ran++; return nil }), fencelock.ErrHeld)
			want(t, "one that fits", p.TryDo(ctx, 0, func(context.Context) error {
				wantStatus(t, p.Semaphore, 5, 4, 0)
				return broken
			}), broken)
			return broken
		}), broken)
		if ran != 1 {
			t.Errorf("ran %d times", ran)
		}
		wantStatus(t, p.Semaphore, 5, 0, 0)
	})
}

func TestSizesThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		five, three := start(store, 5), start(store, 3)
		permit := five.take(t, 1)
		_, err := three.TryAcquire(t.Context(), 1)
		want(t, "another size", err, fencelock.ErrInvalid)
		want(t, "another size", three.Do(t.Context(), 1, nil), fencelock.ErrInvalid)
		if err := three.Resize(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		permits := []*fencelock.Lock{permit, three.take(t, 2), five.take(t, 1)}
		wantStatus(t, three.Semaphore, 4, 4, 0)
		_, err = five.TryAcquire(t.Context(), 1)
		want(t, "a permit too many", err, fencelock.ErrHeld)
		release(t, permits...)
		_, err = three.Acquire(t.Context(), 4)
		want(t, "more than it was made with", err, fencelock.ErrInvalid)
	})
}

func TestMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), 5)
		for what, c := range map[string]struct {
			name         string
			size, weight int
		}{
			"no name":          {"", 5, 1},
			"no size":          {name, 0, 1},
			"a negative size":  {name, -1, 1},
			"too heavy":        {name, 5, 6},
			"heavier by far":   {name, 1, 1 << 40},
			"negative weight":  {name, 5, -1},
			"weight, no size":  {name, 0, 7},
			"nothing is right": {"", -1, -1},
		} {
			s := semaphore.New(p.locks, c.name, c.size)
			_, err := s.Acquire(t.Context(), c.weight)
			want(t, what, err, fencelock.ErrInvalid)
			_, err = s.TryAcquire(t.Context(), c.weight)
			want(t, what, err, fencelock.ErrInvalid)
			want(t, what, s.Do(t.Context(), c.weight, nil), fencelock.ErrInvalid)
			want(t, what, s.TryDo(t.Context(), c.weight, nil), fencelock.ErrInvalid)
		}
		want(t, "Resize", p.Resize(t.Context(), 0), fencelock.ErrInvalid)
		want(t, "Resize", semaphore.New(p.locks, "", 5).Resize(t.Context(), 1), fencelock.ErrInvalid)
		_, err := semaphore.New(p.locks, "", 5).Status(t.Context())
		want(t, "Status", err, fencelock.ErrInvalid)
		_, err = p.TryAcquire(t.Context(), 6)
		if got := fmt.Sprint(err); got != `invalid request: the weight 6 is more than the limit 5` {
			t.Error(got)
		}
	})
}

// A Locker's own options do not make permits of another kind.
func TestLockersWithOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), 5)
		for _, o := range []fencelock.Options{{Wait: time.Second}, {Shared: true}, {Limit: 99}, {Shared: true, Limit: 2, Weight: 2}} {
			s := semaphore.New(p.locks.With(o), name, 5)
			first, err := s.TryAcquire(t.Context(), 0)
			second, too := s.TryAcquire(t.Context(), 4)
			if err != nil || too != nil {
				t.Fatalf("%+v: %v, %v", o, err, too)
			}
			wantStatus(t, p.Semaphore, 5, 5, 0)
			_, err = s.TryAcquire(t.Context(), 1)
			want(t, "one more", err, fencelock.ErrHeld)
			if err := errors.Join(first.Release(), second.Release()); err != nil {
				t.Error(err)
			}
		}
		odd := p.locks.With(fencelock.Options{TTL: time.Minute, Note: "job 7"})
		permit, err := semaphore.New(odd, name, 5).Acquire(t.Context(), 0)
		if err != nil || time.Until(permit.Deadline()) < 50*time.Second {
			t.Fatalf("%+v, %v", permit, err)
		}
		_, err = semaphore.New(odd, "other", 0).TryAcquire(t.Context(), 1)
		want(t, "no size", err, fencelock.ErrInvalid)
		if err := semaphore.New(odd, name, 5).Do(t.Context(), 0, func(context.Context) error {
			wantStatus(t, p.Semaphore, 5, 2, 0)
			return nil
		}); err != nil {
			t.Error(err)
		}
		st, err := p.Status(t.Context())
		if err != nil || st.Taken != 1 || st.Holders[0].Note != "job 7" || st.Size != 5 {
			t.Errorf("%+v, %v", st, err)
		}
	})
}
