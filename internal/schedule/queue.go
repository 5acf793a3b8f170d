package schedule

import (
	"container/heap"
	"time"
)

// Entry is one item of a queue. An Entry with only its Item set is not queued. It can be in one
// queue at a time.
type Entry[T any] struct {
	Item   T
	at     time.Duration
	index  int  // the position in the queue plus 1; 0 if not queued
	closed bool // never queue it again
}

// Queue is a priority queue by time, earliest first. The zero Queue is empty. It is not safe for
// concurrent use.
type Queue[T any] struct{ entries entries[T] }

// Len returns the number of queued items.
func (q *Queue[T]) Len() int { return len(q.entries) }

// Set queues an item for the time at, or moves it there. The item must not have been closed.
func (q *Queue[T]) Set(e *Entry[T], at time.Duration) {
	e.at = at
	if e.index > 0 {
		heap.Fix(&q.entries, e.index-1)
		return
	}
	heap.Push(&q.entries, e)
}

// Pop removes and returns the first item. The queue must not be empty.
func (q *Queue[T]) Pop() *Entry[T] { return heap.Pop(&q.entries).(*Entry[T]) }

// Close removes an item permanently.
func (q *Queue[T]) Close(e *Entry[T]) {
	e.closed = true
	if e.index > 0 {
		heap.Remove(&q.entries, e.index-1)
	}
}

// first returns the time of the first item. The queue must not be empty.
func (q *Queue[T]) first() time.Duration { return q.entries[0].at }

// entries implements heap.Interface.
type entries[T any] []*Entry[T]

func (s entries[T]) Len() int           { return len(s) }
func (s entries[T]) Less(i, j int) bool { return s[i].at < s[j].at }

func (s entries[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i+1, j+1
}

func (s *entries[T]) Push(x any) {
	e := x.(*Entry[T])
	*s = append(*s, e)
	e.index = len(*s)
}

func (s *entries[T]) Pop() any {
	old := *s
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	e.index = 0
	return e
}
