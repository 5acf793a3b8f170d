// Package nameindex is the index of names that the engines on Redis use for List: a sorted set,
// scored by until when a name may have to be listed. The index decides nothing: List asks for the
// status of each name in it, and omits names that are missing from it.
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
	// After is for how long a name is held, or waited for, before it is noted: short
	// locks cost the server nothing.
	After = 250 * time.Millisecond
	// Lag is how late the note may be that follows a renewal.
	Lag = time.Second
	// Size is how many names one script notes or drops.
	Size = 500
	// limit bounds the writing of one set of notes.
	limit = 2 * time.Second
	// refusal is for how long a user is not asked again who may not write the index.
	refusal = time.Minute
)

// Noted is a name that may have to be listed for so long.
type Noted struct {
	Owner, Name string
	Life        time.Duration
	Closes      bool // by a minimum hold, whether it is held or not
}

// Notes is what a client has to note. What is exported is set before the first use. All
// methods may be called from many goroutines at once.
type Notes struct {
	Tasks   *tasks.Group     // of the engine
	AtClose time.Duration    // how long the last write may take when it is closed
	Matters func(Noted) bool // whether a name is still held, or waited for; must not block

	// Write notes names with their lives, and reports whether the user may not. Nobody needs
	// to know whether it worked otherwise: the next renewal notes the name again.
	Write func(ctx context.Context, due map[string]time.Duration) (refused bool)

	mu         sync.Mutex // guards all below
	young, old []Noted    // those of this tick and of the one before
	running    bool       // somebody will write them
	refused    time.Time  // when the user was last told that it may not; zero if it may
}

// Add has a name noted soon, if it still matters then. It does nothing once the engine is closed.
func (x *Notes) Add(n Noted) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.refused.IsZero() && time.Since(x.refused) < refusal {
		return
	}
	if !x.running {
		x.running = x.Tasks.Go(x.keep) // ends when there is nothing to note, or soon after Close
	}
	if x.running {
		x.young = append(x.young, n)
	}
}

// due returns the names to note now, with their lives, and whether there may be more.
// Once the engine is closed these are minimum holds alone.
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

// keep has notes written until there are none, or until the engine is closed, after which it
// has the rest written within AtClose.
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

// write has names written, and keeps in mind that the user may not.
func (x *Notes) write(ctx context.Context, limit time.Duration, names map[string]time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if x.Write(ctx, names) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.refused = time.Now()
	}
}

// Nothing is a Write that notes nothing.
func Nothing(context.Context, map[string]time.Duration) (refused bool) { return false }

// Page adds the names that a query chooses, of an answer to PageLua, and returns the cursor of the
// next page, "0" if there is none. What is in the index may be no name at all.
func Page(text string, q driver.Query, found map[string]bool) (next string) {
	page := strings.Split(text, "\x00")
	for _, name := range page[1:] {
		if q.Matches(name) && driver.CheckName(name) == nil {
			found[name] = true
		}
	}
	return page[0]
}

// FreeUntil is the first argument of DropLua, for names that were free at a time of the
// server's, in microseconds. Whoever got one since then notes it later than that.
func FreeUntil(at int64) string {
	return strconv.FormatInt(at+(After-50*time.Millisecond).Microseconds(), 10)
}
