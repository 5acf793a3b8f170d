package redislock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
)

const (
	// indexShards is how many keys share the index of a Cluster.
	indexShards = 16
	// waitLife is for how long a name that is waited for stays noted.
	waitLife = 3 * maxTouch
)

// note has a name noted in the index soon, if it still matters then. The caller holds
// mu.
func (e *Engine) note(n nameindex.Noted) {
	e.index.Add(n, func() bool {
		return e.spawn(func() { nameindex.Keep(e.closed, closeLimit, e.dueNames, e.writeIndex) })
	})
}

// dueNames returns the names to note now, and whether there may be more.
func (e *Engine) dueNames() (due map[string]time.Duration, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.index.Due(e.closed.Err() != nil, func(n nameindex.Noted) bool {
		_, held := e.holds[n.Owner]
		return held || e.groups[n.Name] != nil
	})
}

// writeIndex notes names. Nobody needs to know whether that worked: the next renewal
// notes them again.
func (e *Engine) writeIndex(ctx context.Context, due map[string]time.Duration) {
	args := map[string][]string{}
	for name, life := range due {
		key := e.indexOf(name)
		args[key] = append(args[key], millis(life), name)
	}
	for _, r := range e.conn.Eval(ctx, chunked(indexScript, 2*nameindex.Size, args)) {
		if denied(r.Err) {
			e.mu.Lock()
			e.index.Refuse()
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
func (e *Engine) indexed(ctx context.Context, q driver.Query, found map[string]bool) error {
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
			next, page := nameindex.Page(r.Text)
			for _, name := range page {
				if q.Matches(name) && driver.CheckName(name) == nil {
					found[name] = true
				}
			}
			if next != "0" {
				rest = append(rest, Call{Script: indexNamesScript, Keys: calls[i].Keys, Args: []string{next}})
			}
		}
		calls = rest
	}
	return nil
}

// dropNames takes names out of the index that were free at a time of the server's.
func (e *Engine) dropNames(ctx context.Context, free []string, at int64) {
	args := map[string][]string{}
	for _, name := range free {
		key := e.indexOf(name)
		args[key] = append(args[key], name)
	}
	e.conn.Eval(withDeadline(ctx, attemptLimit(0)), chunked(indexDropScript, nameindex.Size, args, nameindex.FreeUntil(at)))
}
