package redlock

import (
	"context"
	"slices"
)

// turn is what the requests of one process that wait for one name share: only
// the first of them competes with other processes, or they would outvote one
// another.
type turn struct {
	engine *Engine

	// Guarded by Engine.mu.
	users int
	busy  bool
	queue []chan struct{}
	last  outcome                // of the one whose turn it is, or was before
	ears  map[string]chan string // of those who compete, by their names in the nodes' queues
}

// turnOf returns the turn of a name; whoever calls it calls leave when done.
func (e *Engine) turnOf(name string) *turn {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.turns[name]
	if t == nil {
		t = &turn{engine: e, ears: map[string]chan string{}}
		e.turns[name] = t
	}
	t.users++
	return t
}

func (e *Engine) leave(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.turns[name]
	if t.users--; t.users == 0 {
		delete(e.turns, name)
	}
}

// note remembers what a request heard whose turn it is: those behind it have heard
// the same.
func (t *turn) note(ctx context.Context, o *outcome) {
	if ctx.Err() == nil {
		t.engine.mu.Lock()
		t.last = *o
		t.engine.mu.Unlock()
	}
}

// told returns what was heard last.
func (t *turn) told() outcome {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	return t.last
}

// await blocks until it is the caller's turn, who then says next.
func (w *wait) await(ctx context.Context) error {
	e, t := w.engine, w.turn
	e.mu.Lock()
	if !t.busy {
		t.busy = true
		e.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	t.queue = append(t.queue, mine)
	position := len(t.queue) + 1
	e.mu.Unlock()
	w.note(ctx)
	w.inform(position)
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		t.desert(mine)
		w.note(context.Background())
		return w.heard.Ended(ctx, nil)
	case <-e.closed.Done():
		t.desert(mine)
		return unavailable(errClosed)
	}
}

// note takes what was heard by the one whose turn it is. If that has not been said
// anything yet, or has got the lock, it is in the way itself.
func (w *wait) note(ctx context.Context) {
	o := w.turn.told()
	if o.err == nil && o.inWay == nil {
		return
	}
	o.note(ctx, &w.heard)
}

// next passes the turn on.
func (t *turn) next() {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	if len(t.queue) == 0 {
		t.busy = false
		return
	}
	close(t.queue[0])
	t.queue = t.queue[1:]
}

// desert leaves the queue, or passes on a turn that came in the same instant.
func (t *turn) desert(mine chan struct{}) {
	t.engine.mu.Lock()
	i := slices.Index(t.queue, mine)
	if i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	}
	t.engine.mu.Unlock()
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

// listen returns where news of the name comes: whose turn it is, the last news
// only. The caller says deaf at the end.
func (t *turn) listen(caller string) <-chan string {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	ear := make(chan string, 1)
	t.ears[caller] = ear
	return ear
}

func (t *turn) deaf(caller string) {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	delete(t.ears, caller)
}

// ring tells those who wait for a name whose turn it is.
func (e *Engine) ring(name, first string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.turns[name]; t != nil {
		t.ring(first)
	}
}

// ringAll wakes everybody: news may have been missed.
func (e *Engine) ringAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.turns {
		t.ring(everybody)
	}
}

// ring tells those who wait. The caller holds Engine.mu.
func (t *turn) ring(first string) {
	for caller, ear := range t.ears {
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
