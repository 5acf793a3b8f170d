package redislock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

const (
	// indexAfter is for how long a name is held, or waited for, before it is noted in
	// the index: short locks cost the server nothing.
	indexAfter = 250 * time.Millisecond
	// indexLag is how late the note may be that follows a renewal.
	indexLag = time.Second
	// indexLimit bounds the writing of one set of notes.
	indexLimit = 2 * time.Second
	// indexShards is how many keys share the index of a Cluster.
	indexShards = 16
	// indexSize is how many names one script notes or drops.
	indexSize = 500
	// indexRefused is for how long a user is not asked again who may not write it.
	indexRefused = time.Minute
	// waitLife is for how long a name that is waited for stays noted.
	waitLife = 3 * maxTouch
)

// index is what this client has to note in the index of names that List looks at.
// The index decides nothing: what it names is looked at, and what it misses is not
// listed.
type index struct {
	// Guarded by Engine.mu.
	young, old []noted   // those of this tick and of the one before
	running    bool      // somebody will write them
	refused    time.Time // when the user was last told that it may not; zero if it may
}

// noted is a name that may have to be listed for so long.
type noted struct {
	owner, name string
	life        time.Duration
	closes      bool // by a minimum hold, whether it is held or not
}

// note has a name noted in the index soon, if it still matters then. The caller holds
// mu.
func (e *Engine) note(n noted) {
	x := &e.index
	if !x.refused.IsZero() && time.Since(x.refused) < indexRefused {
		return
	}
	if !x.running {
		x.running = e.spawn(e.keepIndex)
	}
	if x.running {
		x.young = append(x.young, n)
	}
}

// keepIndex writes notes. It ends when there is nothing to note, or with Close.
func (e *Engine) keepIndex() {
	tick := time.NewTicker(indexAfter)
	defer tick.Stop()
	for more := true; more; {
		ctx, limit := e.closed, indexLimit
		select {
		case <-tick.C:
		case <-e.closed.Done():
			ctx, limit = context.Background(), closeLimit
		}
		var names map[string]time.Duration
		names, more = e.dueNames()
		ctx, cancel := context.WithTimeout(ctx, limit)
		e.writeIndex(ctx, names)
		cancel()
	}
}

// dueNames returns the names to note now, and whether there may be more. After Close
// these are minimum holds alone.
func (e *Engine) dueNames() (due map[string]time.Duration, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, closed := &e.index, e.closed.Err() != nil
	if closed {
		x.old, x.young = append(x.old, x.young...), nil
	}
	due = map[string]time.Duration{}
	for _, n := range x.old {
		_, held := e.holds[n.owner]
		if n.closes || !closed && (held || e.groups[n.name] != nil) {
			due[n.name] = max(due[n.name], n.life)
		}
	}
	x.old, x.young = x.young, x.old[:0]
	if x.running = len(x.old) > 0; !x.running {
		x.old, x.young = nil, nil
	}
	return due, x.running
}

// writeIndex notes names. Nobody needs to know whether that worked: the next renewal
// notes them again.
func (e *Engine) writeIndex(ctx context.Context, names map[string]time.Duration) {
	if len(names) == 0 {
		return
	}
	args := map[string][]string{}
	for name, life := range names {
		key := e.indexOf(name)
		args[key] = append(args[key], millis(life), name)
	}
	for _, r := range e.conn.Eval(ctx, chunked(indexScript, 2*indexSize, args)) {
		if denied(r.Err) {
			e.mu.Lock()
			e.index.refused = time.Now()
			e.mu.Unlock()
		}
	}
}

// denied reports whether the user has not the right.
func denied(err error) bool {
	e, ok := errors.AsType[ServerError](err)
	return ok && e.Denied()
}

// chunked makes calls with so many of the arguments for each key, after some that all
// begin with.
func chunked(s *Script, size int, args map[string][]string, begin ...string) (calls []Call) {
	for key, all := range args {
		for part := range slices.Chunk(all, size) {
			calls = append(calls, Call{Script: s, Keys: []string{key}, Args: append(slices.Clone(begin), part...)})
		}
	}
	return calls
}

// indexOf is the key of the index that a name belongs to.
func (e *Engine) indexOf(name string) string {
	if !e.conn.Cluster() {
		return e.indexKey(-1)
	}
	return e.indexKey(slotOf(name) % indexShards)
}

// indexKey is the key of a shard, or of the only one.
func (e *Engine) indexKey(shard int) string {
	key := e.cfg.Prefix + "fencelock:names"
	if shard < 0 {
		return key
	}
	return key + ":{" + strconv.Itoa(shard) + "}"
}

// indexed collects the names that are in the index.
func (e *Engine) indexed(ctx context.Context, q driver.Query, names map[string]bool) error {
	first, last := -1, 0
	if e.conn.Cluster() {
		first, last = 0, indexShards
	}
	var calls []Call
	for shard := first; shard < last; shard++ {
		calls = append(calls, Call{Script: indexNamesScript, Keys: []string{e.indexKey(shard)}, Args: []string{"0"}})
	}
	for len(calls) > 0 {
		var rest []Call
		for i, r := range e.conn.Eval(ctx, calls) {
			if r.Err != nil {
				return r.Err
			}
			page := strings.Split(r.Text, "\x00")
			for _, name := range page[1:] {
				if q.Matches(name) && driver.CheckName(name) == nil {
					names[name] = true
				}
			}
			if page[0] != "0" {
				rest = append(rest, Call{Script: indexNamesScript, Keys: calls[i].Keys, Args: page[:1]})
			}
		}
		calls = rest
	}
	return nil
}

// dropNames takes names out of the index that were free at a time of the server's.
// Whoever got one since then notes it later than that.
func (e *Engine) dropNames(ctx context.Context, names []string, at int64) {
	args := map[string][]string{}
	for _, name := range names {
		key := e.indexOf(name)
		args[key] = append(args[key], name)
	}
	until := strconv.FormatInt(at+(indexAfter-50*time.Millisecond).Microseconds(), 10)
	e.conn.Eval(within(ctx, attemptLimit(0)), chunked(indexDropScript, indexSize, args, until))
}
