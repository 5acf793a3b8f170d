package redlock

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/words"
	"github.com/fencelock/fencelock/redislock"
)

// List returns the names that a majority of the nodes shows as held, waited for
// or closed by a minimum hold. Unless the name is exact it looks at those that clients
// of this library have held, or waited for, for longer than half a second; with Scan, or
// where the user may not read their index, it looks through all keys of the nodes
// instead. Of the exclusive requests that wait in one process the nodes know the first;
// the order of waiters is no promise.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	if err := e.begin(); err != nil {
		return nil, err
	}
	defer e.tasks.Done()
	if err := e.probeAll(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	looks := make([]look, len(e.nodes))
	e.each(looks, func(n *node, l *look) { l.names, l.err = n.names(ctx, q) })
	all := map[string]bool{} // a node may have missed a note that others have
	for _, l := range looks {
		maps.Copy(all, l.names)
	}
	names := slices.Sorted(maps.Keys(all))
	e.each(looks, func(n *node, l *look) { l.list, l.err = n.list(ctx, names, l.names, !q.Exact && !q.Scan) })
	var why causes
	var lists []statuses
	for i, l := range looks {
		if l.err != nil {
			why.add(e.nodes[i], l.err)
		} else {
			lists = append(lists, l.list)
		}
	}
	if len(lists) < e.need {
		return nil, why.err()
	}
	return e.merge(lists), nil
}

// look is what one node shows.
type look struct {
	names map[string]bool
	list  statuses
	err   error
}

// each looks at all nodes at once, but for those that have failed.
func (e *Engine) each(looks []look, see func(*node, *look)) {
	var all sync.WaitGroup
	for i, n := range e.nodes {
		if looks[i].err == nil {
			all.Go(func() { see(n, &looks[i]) })
		}
	}
	all.Wait()
}

// statuses are what one node shows, by name.
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
		if s := e.mergeOne(name, lists); !idle(s) {
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

// list lists what the node shows of names. If tidy, those that are free leave its index,
// which has known.
func (n *node) list(ctx context.Context, names []string, known map[string]bool, tidy bool) (statuses, error) {
	list := statuses{}
	for part := range slices.Chunk(names, nameindex.Size) {
		calls := make([]redislock.Call, len(part))
		for j, name := range part {
			calls[j] = n.engine.call(n.engine.lua.status, name)
		}
		var free []string
		at := int64(math.MaxInt64)
		for j, r := range n.ask(ctx, calls...) {
			if r.Err != nil {
				return nil, r.Err
			}
			s, now, err := parseStatus(part[j], r.Text)
			if err != nil {
				return nil, err
			}
			if list[part[j]] = s; known[s.Name] && idle(s) {
				free, at = append(free, s.Name), min(at, now)
			}
		}
		if tidy && len(free) > 0 {
			n.drop(ctx, free, at)
		}
	}
	return list, nil
}

func idle(s driver.Status) bool {
	return len(s.Holders) == 0 && len(s.Waiters) == 0 && s.NotBefore.IsZero()
}

// names returns the names of which the node may have something to show.
func (n *node) names(ctx context.Context, q driver.Query) (map[string]bool, error) {
	if o := n.out.Load(); o != nil {
		return nil, o.cause
	}
	if q.Exact {
		return map[string]bool{q.Prefix: true}, nil
	}
	if !q.Scan {
		if names, err := n.indexed(ctx, q); !denied(err) {
			return names, err
		}
	}
	return n.scan(ctx, q)
}

// scan returns the names that a look at all keys finds.
func (n *node) scan(ctx context.Context, q driver.Query) (map[string]bool, error) {
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
	return names, nil
}
