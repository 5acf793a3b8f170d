package schedule

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// Inner is what a Schedule remembers besides its queue, for tests that compare
// states and spoil them.
type Inner struct {
	Armed, Awake bool
	Fires        time.Duration
	Last         hold.Instant
}

// Inner returns what s remembers.
func (s *Schedule[T]) Inner() Inner { return Inner{s.armed, s.awake, s.fires, s.last} }

// Spoil overwrites what s remembers.
func (s *Schedule[T]) Spoil(in Inner) {
	s.armed, s.awake, s.fires, s.last = in.Armed, in.Awake, in.Fires, in.Last
}

// At returns when the entry is due, and whether it is queued.
func (e *Entry[T]) At() (time.Duration, bool) { return e.at, e.index > 0 }

// Reopen undoes a Close but for the queue.
func (e *Entry[T]) Reopen() { e.closed = false }
