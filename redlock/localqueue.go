package redlock

import (
	"context"
	"slices"
	"sync"
)

// localQueue is what the requests of one process that wait for one name share: only
// the first of them competes with other processes, or they would outvote one
// another.
type localQueue struct {
	all *localQueues

	// Guarded by localQueues.mu.
	users       int
	busy        bool
	queue       []chan struct{}
	last        outcome                // of the one whose turn it is, or was before
	subscribers map[string]chan string // of those who compete, by their names in the nodes' queues
}

// localQueues are the queues of all names that this process waits for, or asks for.
type localQueues struct {
	mu     sync.Mutex // guards byName, and what the queues say
	byName map[string]*localQueue
}

// enter returns the queue of a name; whoever calls it calls leave when done.
func (s *localQueues) enter(name string) *localQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.byName[name]
	if t == nil {
		t = &localQueue{all: s, subscribers: map[string]chan string{}}
		s.byName[name] = t
	}
	t.users++
	return t
}

func (s *localQueues) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.byName[name]
	if t.users--; t.users == 0 {
		delete(s.byName, name)
	}
}

// has reports whether a name is waited for, or asked for.
func (s *localQueues) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name] != nil
}

// note remembers what a request heard whose turn it is: those behind it have heard
// the same.
func (t *localQueue) note(ctx context.Context, o *outcome) {
	if ctx.Err() == nil {
		t.all.mu.Lock()
		t.last = *o
		t.all.mu.Unlock()
	}
}

// told returns what was heard last.
func (t *localQueue) told() outcome {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	return t.last
}

// await blocks until it is the caller's turn, who then says next.
func (w *wait) await(ctx context.Context) error {
	t := w.queue
	t.all.mu.Lock()
	if !t.busy {
		t.busy = true
		t.all.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	t.queue = append(t.queue, mine)
	position := len(t.queue) + 1
	t.all.mu.Unlock()
	w.note(ctx)
	w.inform(position)
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		t.cancel(mine)
		w.note(context.Background())
		return w.heard.Ended(ctx, nil)
	case <-w.engine.closed.Done():
		t.cancel(mine)
		return unavailable(errClosed)
	}
}

// note takes what was heard by the one whose turn it is. If that has not been said
// anything yet, or has got the lock, it is in the way itself.
func (w *wait) note(ctx context.Context) {
	o := w.queue.told()
	if o.err == nil && o.inWay == nil {
		return
	}
	o.note(ctx, &w.heard)
}

// next passes the turn on.
func (t *localQueue) next() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if len(t.queue) == 0 {
		t.busy = false
		return
	}
	close(t.queue[0])
	t.queue = t.queue[1:]
}

// cancel leaves the queue, or passes on a turn that came in the same instant.
func (t *localQueue) cancel(mine chan struct{}) {
	t.all.mu.Lock()
	i := slices.Index(t.queue, mine)
	if i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	}
	t.all.mu.Unlock()
	if i < 0 {
		t.next()
	}
}

// News of a name is whose turn it is: a name in the nodes' queues, a mode, or one
// of these.
const (
	everybody = "*" // all may look
	somebody  = "-" // one of those who wait, nobody knows which
)

// subscribe returns where news of the name comes: whose turn it is, the last news
// only. The caller calls unsubscribe at the end.
func (t *localQueue) subscribe(caller string) <-chan string {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	ear := make(chan string, 1)
	t.subscribers[caller] = ear
	return ear
}

func (t *localQueue) unsubscribe(caller string) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	delete(t.subscribers, caller)
}

// notify tells those who wait for a name whose turn it is.
func (s *localQueues) notify(name, first string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byName[name]; t != nil {
		t.notify(first)
	}
}

// notifyAll wakes everybody: news may have been missed.
func (s *localQueues) notifyAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.byName {
		t.notify(everybody)
	}
}

// notify tells those who wait. The caller holds localQueues.mu.
func (t *localQueue) notify(first string) {
	for caller, ear := range t.subscribers {
		select {
		case last := <-ear:
			if last != somebody && (first == somebody || last == caller || last == everybody) {
				ear <- last
				continue
			}
		default:
		}
		ear <- first
	}
}
