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

// beatSize is how many names one script call reports as waited for. On a Cluster it is one.
const beatSize = 100

// beater tells the servers once a second that this client still waits, for all its names together.
type beater struct {
	client *client
	queue  *waitQueue
	parts  *parts

	// Guarded by waitQueue.mu.
	running bool
	busy    map[string]bool // parts whose last beat has not been answered
}

// start begins to beat unless it does already. The caller holds waitQueue.mu and has called
// tasks.Enter.
func (b *beater) start() {
	if !b.running {
		b.running = true
		b.client.tasks.Spawn(b.loop) // ends when nobody waits, or with Close
	}
}

// loop beats until no group is left.
func (b *beater) loop() {
	for {
		retry.Sleep(b.client.closed, pollEvery-retry.Jitter(pollEvery/10))
		if b.ended() {
			return
		}
		b.beat()
	}
}

// ended reports whether nobody waits. A group that begins at the same time is either seen or starts
// another loop.
func (b *beater) ended() bool {
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	b.running = b.client.closed.Err() == nil && len(b.queue.groups) > 0
	return !b.running
}

// pulse is a group and its oldest queued request.
type pulse struct {
	group *group
	entry string
	lock  string
}

// pulses returns the groups that wait. Those that must put their requests back do so by a poll.
func (q *waitQueue) pulses() (all []pulse) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all = make([]pulse, 0, len(q.groups))
	for _, g := range q.groups {
		if w := g.oldest(); w != nil && !g.lost {
			if w.pulse == "" {
				w.pulse = w.entry()
			}
			all = append(all, pulse{g, w.pulse, g.lock})
		}
	}
	return all
}

// beat reports all groups, to each master of a Cluster separately: one that is unresponsive must not
// delay the others.
func (b *beater) beat() {
	all := map[string][]pulse{}
	switch pulses := b.queue.pulses(); {
	case b.client.cluster():
		for _, p := range pulses {
			part := b.parts.of(slotOf(p.lock))
			all[part] = append(all[part], p)
		}
	case len(pulses) > 0:
		all[""] = pulses
	}
	for part, pulses := range all {
		if b.begin(part) {
			b.client.tasks.Spawn(func() { // ends with the answer, after grantLife, or with Close
				defer b.end(part)
				b.send(pulses)
			})
		}
	}
}

// begin reports whether no beat to a part is under way. If it returns true, the caller sends one and
// calls end.
func (b *beater) begin(part string) bool {
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	if b.busy[part] {
		return false
	}
	b.busy[part] = true
	return true
}

func (b *beater) end(part string) {
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	delete(b.busy, part)
}

// send reports groups, in one pipeline. A group that needs more than that polls at once.
func (b *beater) send(all []pulse) {
	const limit = grantLife // one that is late does no harm
	b.client.askTime(b.client.closed)
	until, _ := b.client.until(b.client.closed, limit)
	sent := time.Now()
	size := beatSize
	if b.client.cluster() {
		size = 1
	}
	head := []string{b.client.base(), until, b.client.own.stamp(sent)}
	chunks := slices.Collect(slices.Chunk(all, size))
	calls := make([]redisconn.Call, len(chunks))
	for i, chunk := range chunks {
		keys, args := make([]string, 1, 1+len(chunk)), make([]string, len(head), len(head)+len(chunk))
		keys[0] = b.client.alive(chunk[0].lock) + b.client.id
		copy(args, head)
		for _, p := range chunk {
			keys, args = append(keys, p.lock), append(args, p.entry)
		}
		calls[i] = redisconn.Call{Script: beatScript, Keys: keys, Args: args}
	}
	ctx, cancel := context.WithTimeout(b.client.closed, limit)
	defer cancel()
	spread := max(pollEvery/2, time.Duration(len(all))*pollPause)
	for i, r := range b.client.conn.Eval(ctx, calls) {
		b.answered(chunks[i], r, sent, spread)
	}
}

// pollPause is the mean time between two polls of the groups whose beat failed: together, they would
// overload a server that is only slow.
const pollPause = 50 * time.Millisecond

// answered acts on one answer. After a failure the groups poll within spread; the next beat is not
// delayed.
func (b *beater) answered(part []pulse, r redisconn.Reply, sent time.Time, spread time.Duration) {
	in := redisfmt.Words{Rest: r.Text}
	if now, late := strings.CutPrefix(r.Text, "late "); late {
		b.client.clock.note(clockSample{sent: sent, server: redisfmt.Number(now)}, true)
		in.Bad = true
	} else if now := in.Int(); r.Err == nil && !in.Bad {
		b.client.clock.note(clockSample{sent: sent, server: now}, false)
	}
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
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
