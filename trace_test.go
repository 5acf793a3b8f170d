package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// spanKey is the context key of the names whose AcquireStart made a context.
type spanKey struct{}

// journal writes down what a tracer is told, by name.
type journal struct {
	mu     sync.Mutex // guards events
	events map[string][]string
}

func (j *journal) note(name, event string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events[name] = append(j.events[name], event)
}

func (j *journal) tracer() *fencelock.Tracer {
	return &fencelock.Tracer{
		AcquireStart: func(ctx context.Context, data fencelock.TraceAcquireStart) context.Context {
			j.note(data.Name, fmt.Sprintf("start in %v, wait %v", ctx.Value(spanKey{}), data.Wait))
			return context.WithValue(ctx, spanKey{}, data.Name)
		},
		AcquireEnd: func(ctx context.Context, data fencelock.TraceAcquireEnd) {
			outcome := "acquired"
			switch {
			case errors.Is(data.Err, fencelock.ErrHeld):
				outcome = "held"
			case data.Err != nil:
				outcome = data.Err.Error()
			}
			j.note(data.Name, fmt.Sprintf("%s in %v", outcome, ctx.Value(spanKey{})))
		},
		HoldEnd: func(_ context.Context, data fencelock.TraceHoldEnd) {
			j.note(data.Name, map[bool]string{true: "lost", false: "let go"}[data.Lost != nil])
		},
	}
}

// TestTracesOfASet: each name has a start of its own, outside the others', and each
// start one end, which says what became of that name.
func TestTracesOfASet(t *testing.T) {
	const start = "start in <nil>, wait true"
	whole := func(name string) []string { return []string{start, "acquired in " + name, "let go"} }
	for _, c := range []struct {
		what string
		held string                                 // another client's
		act  func(*fencelock.Lock, *memlock.Engine) // a minute later
		want map[string][]string
		ask  func(*fencelock.Locker) (*fencelock.LockSet, error)
	}{
		{what: "free", held: "other", want: map[string][]string{"a": whole("a"), "b": whole("b"), "c": whole("c")}},
		{what: "after a wait", held: "b",
			act:  func(held *fencelock.Lock, _ *memlock.Engine) { _ = held.Release() },
			want: map[string][]string{"a": whole("a"), "b": whole("b"), "c": whole("c")}},
		{what: "given up", held: "b",
			want: map[string][]string{"a": whole("a"), "b": {start, "held in b"}}},
		{what: "lost while it waits", held: "b",
			act: func(held *fencelock.Lock, engine *memlock.Engine) {
				engine.Lose("a")
				time.AfterFunc(time.Minute, func() { _ = held.Release() })
			},
			want: map[string][]string{"a": {start, "acquired in a", "lost", start, "acquired in a", "let go"},
				"b": whole("b"), "c": whole("c")}},
		{what: "a try", held: "b",
			ask: func(locks *fencelock.Locker) (*fencelock.LockSet, error) {
				return locks.TryAcquireAll(context.Background(), "a", "b", "c")
			},
			want: map[string][]string{"a": {"start in <nil>, wait false", "acquired in a", "let go"}, "b": {"start in <nil>, wait false", "held in b"}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, _ *fencelock.Locker, engine *memlock.Engine) {
				j := &journal{events: map[string][]string{}}
				locks := fencelock.New(engine, &fencelock.Config{Tracer: j.tracer()}).With(fencelock.Options{TTL: hour})
				held := acquire(t, fencelock.New(engine.Client(), nil), c.held)
				if c.act != nil {
					time.AfterFunc(time.Minute, func() { c.act(held, engine) })
				}
				if c.ask == nil {
					c.ask = func(locks *fencelock.Locker) (*fencelock.LockSet, error) {
						return locks.With(fencelock.Options{Wait: hour}).AcquireAll(context.Background(), "a", "b", "c")
					}
				}
				if set, err := c.ask(locks); err == nil {
					_ = set.Release()
				}
				_ = held.Release()
				if d := cmp.Diff(c.want, j.events); d != "" {
					t.Errorf("told (-want +got):\n%s", d)
				}
				for name, events := range j.events {
					grammar(t, name, events)
				}
			})
		})
	}
}

// grammar fails the test unless each start has one end, and each success a hold that
// ends.
func grammar(t *testing.T, name string, events []string) {
	t.Helper()
	text := strings.Join(events, "; ")
	one := `start in <nil>, wait (true|false); ((acquired in ` + name + `; (let go|lost))|[^;]* in ` + name + `)`
	if !regexp.MustCompile(`^` + one + `(; ` + one + `)*$`).MatchString(text) {
		t.Errorf("%s was told of as: %s", name, text)
	}
}

// A lock that is lost before its AcquireEnd was told has its HoldEnd after it.
func TestHoldEndFollowsAcquireEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *fencelock.Locker, engine *memlock.Engine) {
		var told []string
		locks := fencelock.New(engine, &fencelock.Config{Tracer: &fencelock.Tracer{
			AcquireEnd: func(_ context.Context, data fencelock.TraceAcquireEnd) {
				engine.Lose(data.Name)
				synctest.Wait()
				told = append(told, "acquired "+data.Name)
			},
			HoldEnd: func(_ context.Context, data fencelock.TraceHoldEnd) { told = append(told, "lost "+data.Name) },
		}})
		acquire(t, locks, "a")
		synctest.Wait()
		if want := []string{"acquired a", "lost a"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
