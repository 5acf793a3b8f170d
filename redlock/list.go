package redlock

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/words"
	"github.com/fencelock/fencelock/redislock"
)

// List returns the names that a majority of the nodes shows as held, waited for
// or closed by a minimum hold. It looks through all keys of the nodes (SCAN)
// unless the name is exact. Of the exclusive requests that wait in one process
// the nodes know the first; the order of waiters is no promise.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	if err := e.begin(); err != nil {
		return nil, err
	}
	defer e.tasks.Done()
	if err := e.acquaint(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	lists, errs := make([]statuses, len(e.nodes)), make([]error, len(e.nodes))
	var all sync.WaitGroup
	for i, n := range e.nodes {
		all.Go(func() { lists[i], errs[i] = n.list(ctx, q) })
	}
	all.Wait()
	var why causes
	for i, err := range errs {
		if err != nil {
			why.add(e.nodes[i], err)
		}
	}
	if len(e.nodes)-len(why.errs) < e.need {
		return nil, why.err()
	}
	return e.merge(lists), nil
}

// statuses are what one node shows, by name; nil if it does not answer.
type statuses map[string]driver.Status

// merge keeps what a majority of all nodes agrees on.
func (e *Engine) merge(lists []statuses) []driver.Status {
	names := map[string]bool{}
	for _, l := range lists {
		for name := range l {
			names[name] = true
		}
	}
	var out []driver.Status
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if s := e.mergeOne(name, lists); len(s.Holders) > 0 || len(s.Waiters) > 0 || !s.NotBefore.IsZero() {
			out = append(out, s)
		}
	}
	return out
}

func (e *Engine) mergeOne(name string, lists []statuses) driver.Status {
	s := driver.Status{Name: name}
	seen, waiting := map[string][]driver.Holder{}, map[string][]driver.Waiter{}
	var ends []time.Time
	for _, l := range lists {
		one := l[name]
		if !one.NotBefore.IsZero() {
			ends = append(ends, one.NotBefore)
		}
		for _, h := range one.Holders {
			seen[h.Owner] = append(seen[h.Owner], h)
			s.Mode = max(s.Mode, one.Mode)
		}
		for _, w := range one.Waiters {
			waiting[w.Owner] = append(waiting[w.Owner], w)
		}
	}
	for _, hs := range seen {
		if len(hs) >= e.need {
			s.Holders = append(s.Holders, agree(hs, e.need))
		}
	}
	for _, ws := range waiting {
		if len(ws) >= e.need {
			s.Waiters = append(s.Waiters, ws[0])
		}
	}
	slices.SortFunc(s.Waiters, func(a, b driver.Waiter) int { return a.Since.Compare(b.Since) })
	for i := range s.Waiters {
		s.Waiters[i].Position = i + 1
	}
	if len(ends) >= e.need {
		slices.SortFunc(ends, time.Time.Compare)
		s.NotBefore = ends[len(ends)-e.need]
	}
	slices.SortFunc(s.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Token, b.Token) })
	return s
}

// agree makes one holder of what nodes show: its token is the one that a majority
// shows, as long as there is none the greatest, and its lease lasts for as long as a
// majority gives it. A node that heard of the request late may show a greater one.
func agree(hs []driver.Holder, need int) driver.Holder {
	slices.SortFunc(hs, func(a, b driver.Holder) int { return cmp.Compare(b.TTL, a.TTL) })
	h, shown := hs[need-1], map[int64]int{}
	for _, o := range hs {
		h.Token = max(h.Token, o.Token)
		shown[o.Token]++
	}
	for token, nodes := range shown {
		if nodes >= need {
			h.Token = token
		}
	}
	return h
}

// list lists what the node shows.
func (n *node) list(ctx context.Context, q driver.Query) (statuses, error) {
	if o := n.out.Load(); o != nil {
		return nil, o.cause
	}
	names := []string{q.Prefix}
	if !q.Exact {
		var err error
		if names, err = n.names(ctx, q); err != nil {
			return nil, err
		}
	}
	list := statuses{}
	for part := range slices.Chunk(names, 500) {
		calls := make([]redislock.Call, len(part))
		for j, name := range part {
			calls[j] = n.engine.call(n.engine.lua.status, name)
		}
		for j, r := range n.ask(ctx, calls...) {
			if r.Err != nil {
				return nil, r.Err
			}
			s, err := parseStatus(part[j], r.Text)
			if err != nil {
				return nil, err
			}
			list[part[j]] = s
		}
	}
	return list, nil
}

// names returns the names the node knows of.
func (n *node) names(ctx context.Context, q driver.Query) ([]string, error) {
	e, names := n.engine, map[string]bool{}
	literal := words.Literal(e.cfg.Prefix + "lock:" + q.Prefix)
	for _, pattern := range [...]string{literal + "*", "fence:{" + literal + "*"} {
		err := n.conn.Scan(ctx, pattern, func(keys []string) error {
			for _, key := range keys {
				if name, ok := e.nameOf(key); ok && q.Matches(name) {
					names[name] = true
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}
