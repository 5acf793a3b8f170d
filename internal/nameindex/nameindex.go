// Package nameindex maintains the index of names that List uses on Redis: a sorted set whose score
// is the time until which a name may have to be listed. No lock decision depends on it. List checks
// each name of the index, and does not list a name that is missing from it.
package nameindex

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/tasks"
)

// The scripts of the index.
var (
	//go:embed note.lua
	NoteLua string
	//go:embed page.lua
	PageLua string
	//go:embed drop.lua
	DropLua string
)

const (
	// After is how long a name is held or waited for before it is indexed: short locks cost
	// nothing.
	After = 250 * time.Millisecond
	// Lag is how late the index entry after a renewal may be.
	Lag = time.Second
	// Size is how many names one script adds or drops.
	Size = 500
	// limit bounds one write to the index.
	limit = 2 * time.Second
	// refusal is how long nothing is written after the server refused the user.
	refusal = time.Minute
)

// Noted is a name to be indexed for Life.
type Noted struct {
	Owner, Name string
	Life        time.Duration
	Closes      bool // whether a minimum hold blocks the name, even if nobody holds it
}

// Notes are the index entries that a client has to write. Set the exported fields before the first
// use. Notes is safe for concurrent use.
type Notes struct {
	Tasks   *tasks.Group     // of the engine
	AtClose time.Duration    // how long the last write may take when the engine is closed
	Matters func(Noted) bool // reports whether a name is still held or waited for; must not block

	// Write adds names with their lives to the index, and reports whether the server refused the
	// user. Other errors are ignored, because the next renewal adds the name again.
	Write func(ctx context.Context, due map[string]time.Duration) (refused bool)

	mu         sync.Mutex // guards the fields below
	young, old []Noted    // added since the last tick, and before it
	running    bool       // whether keep is active
	refused    time.Time  // when the server last refused the user; zero if it did not
}

// Add indexes a name soon, if it is still held or waited for then. It does nothing after the engine
// was closed.
func (x *Notes) Add(n Noted) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.refused.IsZero() && time.Since(x.refused) < refusal {
		return
	}
	if !x.running {
		x.running = x.Tasks.Go(x.keep) // ends when there is nothing to write, or soon after Close
	}
	if x.running {
		x.young = append(x.young, n)
	}
}

// due returns the names to write now, with their lives, and whether there may be more. After the
// engine was closed, only minimum holds remain.
func (x *Notes) due() (due map[string]time.Duration, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	closed := x.Tasks.Closed.Err() != nil
	if closed {
		x.old, x.young = append(x.old, x.young...), nil
	}
	due = map[string]time.Duration{}
	for _, n := range x.old {
		if n.Closes || !closed && x.Matters(n) {
			due[n.Name] = max(due[n.Name], n.Life)
		}
	}
	x.old, x.young = x.young, x.old[:0]
	if x.running = len(x.old) > 0; !x.running {
		x.old, x.young = nil, nil
	}
	return due, x.running
}

// keep writes entries until there are none, or until the engine is closed. Then it writes the rest
// within AtClose.
func (x *Notes) keep() {
	tick := time.NewTicker(After)
	defer tick.Stop()
	for more := true; more; {
		ctx, limit := x.Tasks.Closed, limit
		select {
		case <-tick.C:
		case <-x.Tasks.Closed.Done():
			ctx, limit = context.Background(), x.AtClose
		}
		var names map[string]time.Duration
		if names, more = x.due(); len(names) > 0 {
			x.write(ctx, limit, names)
		}
	}
}

// write writes names, and records a refusal.
func (x *Notes) write(ctx context.Context, limit time.Duration, names map[string]time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if x.Write(ctx, names) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.refused = time.Now()
	}
}

// Nothing is a Write that does nothing.
func Nothing(context.Context, map[string]time.Duration) (refused bool) { return false }

// Page parses an answer to PageLua and adds the names that q matches to found. It returns the
// cursor of the next page, "0" if there is none. It skips index members that are not valid names.
func Page(text string, q driver.Query, found map[string]bool) (next string) {
	page := strings.Split(text, "\x00")
	for _, name := range page[1:] {
		if q.Matches(name) && driver.CheckName(name) == nil {
			found[name] = true
		}
	}
	return page[0]
}

// FreeUntil returns the first argument of DropLua for names that were free at a time of the
// server's clock, in microseconds. If a client has acquired such a name since, its index entry is
// later.
func FreeUntil(at int64) string {
	return strconv.FormatInt(at+(After-50*time.Millisecond).Microseconds(), 10)
}
