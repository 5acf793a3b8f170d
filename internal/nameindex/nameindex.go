// Package nameindex is the index of names that List looks at, of the engines on Redis: a
// sorted set, scored by until when a name may have to be listed. The index decides
// nothing: what it names is looked at, and what it misses is not listed.
package nameindex

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"time"
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

// Notes is what a client has to note. A mutex of its engine guards it.
type Notes struct {
	young, old []Noted   // those of this tick and of the one before
	running    bool      // somebody will write them
	refused    time.Time // when the user was last told that it may not; zero if it may
}

// Add has a name noted soon, if it still matters then. start has a goroutine call Keep,
// unless the engine is closed.
func (x *Notes) Add(n Noted, start func() bool) {
	if !x.refused.IsZero() && time.Since(x.refused) < refusal {
		return
	}
	if !x.running {
		x.running = start()
	}
	if x.running {
		x.young = append(x.young, n)
	}
}

// Refuse notes that the user may not write the index.
func (x *Notes) Refuse() { x.refused = time.Now() }

// Due returns the names to note now, with their lives, and whether there may be more.
// Once the engine is closed these are minimum holds alone.
func (x *Notes) Due(closed bool, matters func(Noted) bool) (due map[string]time.Duration, more bool) {
	if closed {
		x.old, x.young = append(x.old, x.young...), nil
	}
	due = map[string]time.Duration{}
	for _, n := range x.old {
		if n.Closes || !closed && matters(n) {
			due[n.Name] = max(due[n.Name], n.Life)
		}
	}
	x.old, x.young = x.young, x.old[:0]
	if x.running = len(x.old) > 0; !x.running {
		x.old, x.young = nil, nil
	}
	return due, x.running
}

// Keep has notes written until there are none, or until closed ends, after which it has
// the rest written within atClose.
func Keep(closed context.Context, atClose time.Duration, due func() (map[string]time.Duration, bool), write func(context.Context, map[string]time.Duration)) {
	tick := time.NewTicker(After)
	defer tick.Stop()
	for more := true; more; {
		ctx, limit := closed, limit
		select {
		case <-tick.C:
		case <-closed.Done():
			ctx, limit = context.Background(), atClose
		}
		var names map[string]time.Duration
		names, more = due()
		if len(names) > 0 {
			ctx, cancel := context.WithTimeout(ctx, limit)
			write(ctx, names)
			cancel()
		}
	}
}

// Page reads an answer to PageLua: the cursor of the next page, "0" if there is none,
// and names, some of which may be no names at all.
func Page(text string) (next string, names []string) {
	page := strings.Split(text, "\x00")
	return page[0], page[1:]
}

// FreeUntil is the first argument of DropLua, for names that were free at a time of the
// server's, in microseconds. Whoever got one since then notes it later than that.
func FreeUntil(at int64) string {
	return strconv.FormatInt(at+(After-50*time.Millisecond).Microseconds(), 10)
}
