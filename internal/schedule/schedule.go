// Package schedule decides when the items of a renewer are due and when its one timer must fire, as
// a pure state machine: calls and the time go in, and what to do about the timer comes out. It
// reads no clock and has no timer, goroutine or lock, so a test can try every order of calls.
//
// One rule holds after every call. While an item is queued, a timer is running that fires by its
// time, or within MaxSleep; or a caller is between a call of Due that returned items and the one
// that returns none. While nothing is queued, a timer that fires is not set again.
package schedule

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// What real timers and clocks do.
const (
	MaxSleep = time.Second           // how late a jump of another clock is noticed
	MinSleep = time.Millisecond      // how often a busy machine may set a late timer again
	lateness = 10 * time.Millisecond // how far clocks may drift apart without a jump
)

// Schedule says which items are due when. The zero Schedule is empty. It is not
// safe for concurrent use.
type Schedule[T any] struct {
	queue Queue[T]
	armed bool          // a timer is running, and nobody has heard of it yet
	fires time.Duration // when, while armed
	awake bool          // Due returned items, and will be called again
	last  hold.Instant  // of the last Due
}

// Alarm says what to do about the timer.
type Alarm struct {
	Do Deed
	At time.Duration // when it must fire, by the monotonic clock
}

// Deed is what to do about the timer.
type Deed int

// The deeds.
const (
	Leave Deed = iota // nothing
	Start             // start a timer for At; none is running that counts
	Move              // let the timer that was started last fire at At instead
)

// Set queues an item, or moves it, to be due at at; one that was closed stays out.
// now is the monotonic clock, and may have been read a while ago.
func (s *Schedule[T]) Set(e *Entry[T], at, now time.Duration) Alarm {
	if e.closed {
		return Alarm{}
	}
	s.queue.Set(e, at)
	return s.arm(now)
}

// Close takes an item off the queue for good. It leaves the timer running: one
// that fires early is harmless, and most items are closed before it is worth the
// price of stopping it.
func (s *Schedule[T]) Close(e *Entry[T]) { s.queue.Close(e) }

// Due is called when a timer has fired, and takes the items whose time has come
// off the queue; all of them if a clock jumped, since their times were reckoned by
// the monotonic one. Whoever gets items must call Due again when they are done.
// Two who do so at once do no harm.
func (s *Schedule[T]) Due(now hold.Instant) ([]T, Alarm) {
	if s.fires <= now.Mono {
		s.armed = false // even if nothing is queued: the next item needs a timer of its own
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

// Attended reports whether the rule holds as far as the schedule knows: nothing is
// queued, somebody is awake, or a timer is running that has not fired by now.
func (s *Schedule[T]) Attended(now time.Duration) bool {
	return s.queue.Len() == 0 || s.awake || s.armed && s.fires > now
}

// arm sees to it that a timer fires when the first item is due, or earlier.
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

// strange reports whether the running timer cannot be one of this clock: the test
// in whose bubble it was started is over.
func (s *Schedule[T]) strange(now time.Duration) bool {
	return s.fires > now+MaxSleep || s.fires < now-MaxSleep
}
