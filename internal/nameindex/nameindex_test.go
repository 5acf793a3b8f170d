package nameindex_test

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/internal/nameindex"
)

// engine is one that notes what it holds.
type engine struct {
	nameindex.Notes
	held   map[string]bool
	starts int
}

func (e *engine) add(n nameindex.Noted) {
	e.Add(n, func() bool { e.starts++; return true })
}

func (e *engine) due(closed bool) (map[string]time.Duration, bool) {
	return e.Due(closed, func(n nameindex.Noted) bool { return e.held[n.Owner] })
}

// TestDue: a name is due with the second tick after it came, if it matters then.
func TestDue(t *testing.T) {
	t.Parallel()
	e := engine{held: map[string]bool{"a": true, "b": true}}
	e.add(nameindex.Noted{Owner: "a", Name: "long", Life: time.Second})
	e.add(nameindex.Noted{Owner: "a", Name: "long", Life: time.Minute})
	e.add(nameindex.Noted{Owner: "b", Name: "short", Life: time.Second})
	e.add(nameindex.Noted{Owner: "b", Name: "closed", Life: time.Hour, Closes: true})
	if due, more := e.due(false); len(due) > 0 || !more {
		t.Errorf("at the first tick %v are due, more: %t", due, more)
	}
	delete(e.held, "b")
	want := map[string]time.Duration{"long": time.Minute, "closed": time.Hour}
	if due, more := e.due(false); !maps.Equal(due, want) || more {
		t.Errorf("at the second tick %v are due, more: %t; want %v", due, more, want)
	}
	e.add(nameindex.Noted{Owner: "a", Name: "long", Life: time.Minute})
	e.add(nameindex.Noted{Owner: "b", Name: "closed", Life: time.Hour, Closes: true})
	if due, more := e.due(true); len(due) != 1 || due["closed"] != time.Hour || more {
		t.Errorf("once closed %v are due, more: %t", due, more)
	}
	if e.starts != 2 {
		t.Errorf("started %d times, want once for each time that there was nothing", e.starts)
	}
}

// TestRefused: who was refused is not asked for a minute.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e engine
		e.Refuse()
		e.add(nameindex.Noted{Name: "x"})
		if e.starts > 0 {
			t.Error("noted right after a refusal")
		}
		time.Sleep(time.Minute)
		e.add(nameindex.Noted{Name: "x"})
		if e.starts != 1 {
			t.Error("not noted a minute after a refusal")
		}
	})
}

// TestKeep: notes are written until there are none, and a last time at the end.
func TestKeep(t *testing.T) {
	t.Parallel()
	for _, closes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			closed, end := context.WithCancel(t.Context())
			defer end()
			if closes {
				end()
			}
			rounds, left := 0, 3
			nameindex.Keep(closed, time.Second, func() (map[string]time.Duration, bool) {
				left--
				return map[string]time.Duration{"x": 1}, left > 0 && !closes
			}, func(ctx context.Context, _ map[string]time.Duration) {
				if ctx.Err() == nil {
					rounds++
				}
			})
			if want := map[bool]int{false: 3, true: 1}[closes]; rounds != want {
				t.Errorf("closed: %t, written %d times, want %d", closes, rounds, want)
			}
		})
	}
}
