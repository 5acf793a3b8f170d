package nameindex_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/tasks"
)

// TestDue: a name is written with the second tick after it came, if it matters then, with its
// longest life, until nothing is left.
func TestDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		e.held = map[string]bool{"a": true}
		e.Add(nameindex.Noted{Owner: "a", Name: "long", Life: time.Second})
		e.Add(nameindex.Noted{Owner: "a", Name: "long", Life: time.Minute})
		e.Add(nameindex.Noted{Owner: "b", Name: "short", Life: time.Second})
		e.Add(nameindex.Noted{Owner: "b", Name: "closed", Life: time.Hour, Closes: true})
		e.wait(nameindex.After)
		e.wrote(t)
		e.wait(nameindex.After)
		e.wrote(t, map[string]time.Duration{"long": time.Minute, "closed": time.Hour})
		e.wait(time.Hour)
		e.Add(nameindex.Noted{Owner: "a", Name: "again", Life: time.Second})
		e.wait(2 * nameindex.After)
		e.wrote(t, map[string]time.Duration{"again": time.Second})
	})
}

// TestRefused: who was refused is not asked for a minute.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		e.refuses = true
		note := nameindex.Noted{Name: "x", Life: 1, Closes: true}
		e.Add(note)
		e.wait(2 * nameindex.After)
		e.Add(note)
		e.wait(2 * nameindex.After)
		e.wrote(t, map[string]time.Duration{"x": 1})
		e.wait(time.Minute)
		e.Add(note)
		e.wait(2 * nameindex.After)
		e.wrote(t, map[string]time.Duration{"x": 1})
	})
}

// TestClosed: minimum holds are written once more when the engine is closed, at once and with a
// context that goes on, and nothing later.
func TestClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		e.held = map[string]bool{"a": true}
		e.Add(nameindex.Noted{Owner: "a", Name: "held", Life: time.Hour})
		e.Add(nameindex.Noted{Owner: "a", Name: "closed", Life: time.Hour, Closes: true})
		e.Tasks.Close()
		e.wrote(t, map[string]time.Duration{"closed": time.Hour})
		e.Add(nameindex.Noted{Owner: "a", Name: "closed", Life: time.Hour, Closes: true})
		e.wait(time.Minute)
		e.wrote(t)
	})
}

// engine is one that notes what it holds.
type engine struct {
	nameindex.Notes
	held    map[string]bool
	refuses bool

	mu      sync.Mutex // guards written
	written []map[string]time.Duration
}

func newEngine(t *testing.T) *engine {
	e := &engine{}
	e.Tasks, e.AtClose = tasks.New(), time.Second
	t.Cleanup(e.Tasks.Close)
	e.Matters = func(n nameindex.Noted) bool { return e.held[n.Owner] }
	e.Write = func(ctx context.Context, due map[string]time.Duration) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if ctx.Err() == nil {
			e.written = append(e.written, due)
		}
		return e.refuses
	}
	return e
}

// wait lets time pass, and what happens then.
func (e *engine) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wrote compares what was written since it was called last.
func (e *engine) wrote(t *testing.T, want ...map[string]time.Duration) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.EqualFunc(e.written, want, maps.Equal) {
		t.Errorf("wrote %v, want %v", e.written, want)
	}
	e.written = nil
}
