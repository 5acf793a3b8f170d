package redislock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
)

// touchSize is how many names one script call reports as waited for. On a Cluster it is one.
const touchSize = 100

// toucher tells the servers once a second that this client still waits, for all its names together.
type toucher struct {
	client *client
	queue  *waitQueue
	parts  *parts

	// Guarded by waitQueue.mu.
	running bool
	busy    map[string]bool // parts whose last touch has not been answered
}

// start begins to touch unless it does already. The caller holds waitQueue.mu and has called
// tasks.Enter.
func (t *toucher) start() {
	if !t.running {
		t.running = true
		t.client.tasks.Spawn(t.loop) // ends when nobody waits, or with Close
	}
}

// loop touches until no group is left.
func (t *toucher) loop() {
	for {
		retry.Sleep(t.client.closed, pollEvery-retry.Jitter(pollEvery/10))
		if t.ended() {
			return
		}
		t.touchAll()
	}
}

// ended reports whether nobody waits. A group that begins at the same time is either seen or starts
// another loop.
func (t *toucher) ended() bool {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	t.running = t.client.closed.Err() == nil && len(t.queue.groups) > 0
	return !t.running
}

// touch is a group and its oldest queued request.
type touch struct {
	group *group
	entry string
	lock  string
}

// touches returns the groups that wait. Those that must put their requests back do so by a poll.
func (q *waitQueue) touches() (all []touch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all = make([]touch, 0, len(q.groups))
	for _, g := range q.groups {
		if w := g.oldest(); w != nil && !g.lost {
			if w.touch == "" {
				w.touch = w.entry()
			}
			all = append(all, touch{g, w.touch, g.lock})
		}
	}
	return all
}

// touchAll reports all groups, to each master of a Cluster separately: one that is unresponsive must not
// delay the others.
func (t *toucher) touchAll() {
	all := map[string][]touch{}
	switch touches := t.queue.touches(); {
	case t.client.cluster():
		for _, p := range touches {
			part := t.parts.of(slotOf(p.lock))
			all[part] = append(all[part], p)
		}
	case len(touches) > 0:
		all[""] = touches
	}
	for part, touches := range all {
		if t.begin(part) {
			t.client.tasks.Spawn(func() { // ends with the answer, after grantLife, or with Close
				defer t.end(part)
				t.send(touches)
			})
		}
	}
}

// begin reports whether no touch of a part is under way. If it returns true, the caller sends one and
// calls end.
func (t *toucher) begin(part string) bool {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	if t.busy[part] {
		return false
	}
	t.busy[part] = true
	return true
}

func (t *toucher) end(part string) {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	delete(t.busy, part)
}

// send reports groups, in one pipeline. A group that needs more than that polls at once.
func (t *toucher) send(all []touch) {
	const limit = grantLife // one that is late does no harm
	t.client.askTime(t.client.closed)
	until, _ := t.client.until(t.client.closed, limit)
	sent := time.Now()
	size := touchSize
	if t.client.cluster() {
		size = 1
	}
	head := []string{t.client.base(), until, t.client.own.stamp(sent)}
	chunks := slices.Collect(slices.Chunk(all, size))
	calls := make([]redisconn.Call, len(chunks))
	for i, chunk := range chunks {
		keys, args := make([]string, 1, 1+len(chunk)), make([]string, len(head), len(head)+len(chunk))
		keys[0] = t.client.alive(chunk[0].lock) + t.client.id
		copy(args, head)
		for _, p := range chunk {
			keys, args = append(keys, p.lock), append(args, p.entry)
		}
		calls[i] = redisconn.Call{Script: touchAllScript, Keys: keys, Args: args}
	}
	ctx, cancel := context.WithTimeout(t.client.closed, limit)
	defer cancel()
	spread := max(pollEvery/2, time.Duration(len(all))*pollPause)
	for i, r := range t.client.conn.Eval(ctx, calls) {
		t.answered(chunks[i], r, sent, spread)
	}
}

// pollPause is the mean time between two polls of the groups whose touch failed: together, they would
// overload a server that is only slow.
const pollPause = 50 * time.Millisecond

// answered acts on one answer. After a failure the groups poll within spread; the next touch is not
// delayed.
func (t *toucher) answered(part []touch, r redisconn.Reply, sent time.Time, spread time.Duration) {
	in := redisfmt.Words{Rest: r.Text}
	if now, late := strings.CutPrefix(r.Text, "late "); late {
		t.client.clock.note(clockSample{sent: sent, server: redisfmt.Number(now)}, true)
		in.Bad = true
	} else if now := in.Int(); r.Err == nil && !in.Bad {
		t.client.clock.note(clockSample{sent: sent, server: now}, false)
	}
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	for _, p := range part {
		ms, err := strconv.ParseInt(in.Next(), 10, 64)
		switch {
		case r.Err != nil || in.Bad: // its poll finds out why
			p.group.advance(retry.Jitter(spread))
		case err != nil:
			p.group.advance(0)
		case ms >= 0 && ms < pollEvery.Milliseconds():
			p.group.advance(afterLease(time.Duration(ms) * time.Millisecond))
		}
	}
}
