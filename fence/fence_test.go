package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

// acquire returns a lock that is released with the test.
func acquire(t *testing.T, locks *fencelock.Locker, name string) *fencelock.Lock {
	t.Helper()
	lock, err := locks.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release() })
	return lock
}

// under returns a context with the fence of an exclusive holder.
func under(t *testing.T, token int64) context.Context {
	return fence.NewContext(t.Context(), fence.Fence{Name: "lock", Token: token, Floor: token})
}

// of is the fence of a lock.
func of(l *fencelock.Lock) fence.Fence {
	return fence.Fence{Name: l.Name(), Token: l.Token(), Floor: l.Floor()}
}

func TestFrom(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), nil)
	shared := locks.With(fencelock.Options{Shared: true})
	a, b := acquire(t, locks, "a"), acquire(t, locks, "b")
	s1, s2 := acquire(t, shared, "s"), acquire(t, shared, "s")
	set, err := locks.AcquireAll(t.Context(), "c", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Release() })
	d := set.Locks()[1]
	given := fence.Fence{Name: "elsewhere", Token: 7, Floor: 6}
	none := t.Context()
	// A set that is taken with a context knows more than what was given before.
	setOver := func(ctx context.Context, names ...string) context.Context {
		set, err := locks.AcquireAll(ctx, names...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = set.Release() })
		return set.Context()
	}
	overGiven := setOver(fence.NewContext(none, given), "e", "f")
	overChosen := setOver(fence.With(set.Context(), "c"), "g", "h")
	for name, c := range map[string]struct {
		ctx  context.Context
		want fence.Fence // zero: ErrNoToken
	}{
		"no lock":                  {none, fence.Fence{}},
		"a lock":                   {a.Context(), of(a)},
		"a shared lock":            {s2.Context(), of(s2)},
		"the innermost":            {b.ContextWith(a.Context()), of(b)},
		"the other one":            {fence.With(b.ContextWith(a.Context()), "a"), of(a)},
		"inside of With":           {b.ContextWith(fence.With(a.Context(), "a")), of(b)},
		"a set":                    {set.Context(), fence.Fence{}},
		"one of a set":             {fence.With(set.Context(), "d"), of(d)},
		"none of a set":            {fence.With(set.Context(), "a"), fence.Fence{}},
		"With of none":             {fence.With(a.Context(), "z"), fence.Fence{}},
		"given":                    {fence.NewContext(none, given), given},
		"given over a lock":        {fence.NewContext(a.Context(), given), given},
		"a lock over a given one":  {a.ContextWith(fence.NewContext(none, given)), of(a)},
		"a set over a given one":   {overGiven, fence.Fence{}},
		"a set over a chosen one":  {overChosen, fence.Fence{}},
		"given over that":          {fence.NewContext(overGiven, given), given},
		"a floor above the token":  {fence.NewContext(none, fence.Fence{Token: 1, Floor: 2}), fence.Fence{}},
		"no floor":                 {fence.NewContext(none, fence.Fence{Token: 1}), fence.Fence{}},
		"a negative token":         {fence.NewContext(none, fence.Fence{Token: -1, Floor: -1}), fence.Fence{}},
		"the last of several With": {fence.With(fence.With(set.Context(), "c"), "d"), of(d)},
	} {
		got, err := fence.From(c.ctx)
		if got != c.want || errors.Is(err, fence.ErrNoToken) != (c.want == fence.Fence{}) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
	if s2.Floor() != s1.Token() {
		t.Errorf("the second shared holder has floor %d, want %d", s2.Floor(), s1.Token())
	}
}

// A refusal reaches the tracer of the lock, also of one in a set, and nobody where the
// fence came from elsewhere.
func TestStaleIsTold(t *testing.T) {
	var told []fencelock.TraceStale
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: &fencelock.Tracer{
		Stale: func(_ context.Context, d fencelock.TraceStale) { told = append(told, d) },
	}})
	set, err := locks.AcquireAll(t.Context(), "c", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Release() })
	ctx := fence.With(set.Context(), "d")
	f, err := fence.From(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = f.Refuse(ctx, "resource", f.Token+1)
	if want := (fence.StaleError{Resource: "resource", Token: f.Token, Floor: f.Token + 1}); !errors.Is(err, fence.ErrStale) || *err.(*fence.StaleError) != want {
		t.Errorf("Refuse returns %v, want %v", err, &want)
	}
	if want := (fencelock.TraceStale{Resource: "resource", Name: "d", Token: f.Token, Floor: f.Token + 1, Kind: fencelock.KindLock, Engine: "memory"}); len(told) != 1 || told[0] != want {
		t.Errorf("the tracer was told %+v, want %+v", told, want)
	}
	_ = f.Refuse(t.Context(), "resource", 9)
	if len(told) != 1 {
		t.Errorf("the tracer was told of a write without a lock: %+v", told)
	}
	if got, want := (&fence.StaleError{Resource: "r", Token: 1}).Error(), `fence: stale token: "r" refused token 1`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
