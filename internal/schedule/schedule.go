// Package schedule decides when the items of a renewer are served and when its one timer must fire.
// It is a pure state machine: calls and the time go in, and what to do with the timer comes out. It
// has no clock, timer, goroutine or mutex, so a test can try every order of calls.
//
// One invariant holds after every call. While an item is queued, either a timer is running that
// fires by the item's time or within MaxSleep, or a caller is between a call of Due that returned
// items and the call that returns none. A timer that fires while nothing is queued is not
// restarted.
package schedule

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// The behaviour of real timers and clocks.
const (
	MaxSleep = time.Second           // how late a jump of another clock may be noticed
	MinSleep = time.Millisecond      // the shortest time for which a timer is set
	lateness = 10 * time.Millisecond // how far clocks may drift apart without a jump
)

// Schedule says which items are due when. The zero Schedule is empty. It is not safe for concurrent
// use.
type Schedule[T any] struct {
	queue Queue[T]
	armed bool          // a timer is running and has not called Due
	fires time.Duration // when the timer fires, if armed
	awake bool          // Due returned items and will be called again
	last  hold.Instant  // the time of the last Due
}

// Alarm says what to do with the timer.
type Alarm struct {
	Do Deed
	At time.Duration // when it must fire, by the monotonic clock
}

// Deed is an operation on the timer.
type Deed int

// The operations.
const (
	Leave Deed = iota // do nothing
	Start             // start a new timer for At
	Move              // move the timer that was started last to At
)

// Set queues an item for the time at, or moves it there. It ignores an item that was closed. now is
// a reading of the monotonic clock and may be slightly old.
func (s *Schedule[T]) Set(e *Entry[T], at, now time.Duration) Alarm {
	if e.closed {
		return Alarm{}
	}
	s.queue.Set(e, at)
	return s.arm(now)
}

// Close removes an item permanently. It does not stop the timer: an early timer is harmless, and
// most items are closed before stopping it would pay off.
func (s *Schedule[T]) Close(e *Entry[T]) { s.queue.Close(e) }

// Due is called when the timer has fired. It removes and returns the items that are due. If a clock
// has jumped, it returns all items, because their times were computed for the monotonic clock. A
// caller that gets items must call Due again when it is done. Concurrent callers are harmless.
func (s *Schedule[T]) Due(now hold.Instant) ([]T, Alarm) {
	if s.fires <= now.Mono {
		s.armed = false // even if nothing is queued: the next item needs a new timer
	}
	jumped := now.Jumped(s.last, lateness)
	s.last = now
	var due []T
	for s.queue.Len() > 0 && (jumped || s.queue.first() <= now.Mono) {
		due = append(due, s.queue.Pop().Item)
	}
	s.awake = len(due) > 0
	if s.queue.Len() == 0 {
		return due, Alarm{}
	}
	return due, s.arm(now.Mono)
}

// Attended reports whether the invariant holds as far as the schedule knows: nothing is queued, a
// caller will call Due again, or a timer is running that has not fired by now.
func (s *Schedule[T]) Attended(now time.Duration) bool {
	return s.queue.Len() == 0 || s.awake || s.armed && s.fires > now
}

// arm ensures that a timer fires by the time of the first item.
func (s *Schedule[T]) arm(now time.Duration) Alarm {
	at := max(now+MinSleep, min(s.queue.first(), now+MaxSleep))
	switch {
	case s.awake:
		return Alarm{}
	case !s.armed, s.strange(now):
		s.armed, s.fires = true, at
		return Alarm{Do: Start, At: at}
	case at < s.fires:
		s.fires = at
		return Alarm{Do: Move, At: at}
	}
	return Alarm{}
}

// strange reports whether the running timer belongs to another clock: that of a synctest bubble
// that has ended.
func (s *Schedule[T]) strange(now time.Duration) bool {
	return s.fires > now+MaxSleep || s.fires < now-MaxSleep
}
