package redlock

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// lister implements List.
type lister struct{ set *nodeSet }

// List returns the names that are in use; see [Engine.List].
func (q *lister) List(ctx context.Context, query driver.Query) ([]driver.Status, error) {
	if err := q.set.probeAll(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	looks := make([]*look, len(q.set.nodes))
	for i, n := range q.set.nodes {
		looks[i] = &look{node: n}
	}
	onAll(looks, func(l *look) { l.find(ctx, query) })
	all := map[string]bool{} // a node may lack a name that others have
	for _, l := range looks {
		maps.Copy(all, l.names)
	}
	names := slices.Sorted(maps.Keys(all))
	onAll(looks, func(l *look) { l.read(ctx, names, !query.Exact && !query.Scan) })
	// A node that does not answer does not prove that a name is free, so List needs the answers of
	// a majority.
	var why nodeErrors
	var lists []statuses
	for _, l := range looks {
		if l.err != nil {
			why.add(l.node, l.err)
		} else {
			lists = append(lists, l.list)
		}
	}
	if len(lists) < q.set.need {
		return nil, why.joined()
	}
	return q.merge(lists), nil
}

// onAll calls do for all nodes that have not failed, concurrently.
func onAll(looks []*look, do func(*look)) {
	var all sync.WaitGroup
	for _, l := range looks {
		if l.err == nil {
			all.Go(func() { do(l) }) // ends with the context of the look
		}
	}
	all.Wait()
}

// look is the part of a List on one node.
type look struct {
	*node
	names map[string]bool // that may be in use
	list  statuses
	err   error
}

// statuses are the statuses of one node, by name. A name without one is free.
type statuses map[string]driver.Status

// find finds the names that may be in use on the node.
func (l *look) find(ctx context.Context, query driver.Query) {
	if o := l.out.Load(); o != nil {
		l.err = o.cause
		return
	}
	if query.Exact {
		l.names = map[string]bool{query.Prefix: true}
		return
	}
	if !query.Scan {
		if l.names, l.err = l.readIndex(ctx, query); !redisconn.Denied(l.err) {
			return
		}
	}
	l.names, l.err = l.scan(ctx, query)
}

// readIndex returns the names in the node's index.
func (l *look) readIndex(ctx context.Context, query driver.Query) (map[string]bool, error) {
	found := map[string]bool{}
	for next := ""; next != "0"; {
		r := l.ask(ctx, l.indexCalls(pageScript, 1, []string{max(next, "0")})...)[0]
		if r.Err != nil {
			return nil, r.Err
		}
		next = nameindex.Page(r.Text, query, found)
	}
	return found, nil
}

// scan finds names by scanning all keys. A name that is only waited for or closed by a minimum hold
// has no lock key, but it has a fence key.
func (l *look) scan(ctx context.Context, query driver.Query) (map[string]bool, error) {
	found := map[string]bool{}
	literal := redisfmt.Literal(l.cfg.Prefix + "lock:" + query.Prefix)
	for _, pattern := range [...]string{literal + "*", "fence:{" + literal + "*"} {
		err := l.conn.Scan(ctx, 0, pattern, func(keys []string) error {
			for _, key := range keys {
				if name, ok := l.nameOf(key); ok && query.Matches(name) {
					found[name] = true
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// read reads the statuses of names from the node. With tidy it removes the free ones from the
// node's index.
func (l *look) read(ctx context.Context, names []string, tidy bool) {
	l.list = statuses{}
	for part := range slices.Chunk(names, nameindex.Size) {
		calls := make([]redisconn.Call, len(part))
		for j, name := range part {
			calls[j] = l.call(l.lua.status, name)
		}
		var free []string
		at := int64(math.MaxInt64)
		for j, r := range l.ask(ctx, calls...) {
			if l.err = r.Err; l.err != nil {
				return
			}
			s, now, err := parseStatus(part[j], r.Text)
			if l.err = err; err != nil {
				return
			}
			if l.list[part[j]] = s; l.names[s.Name] && unused(s) {
				free, at = append(free, s.Name), min(at, now)
			}
		}
		if tidy && len(free) > 0 { // the script keeps names that may have been added since
			l.conn.Eval(ctx, l.indexCalls(dropScript, nameindex.Size, free, nameindex.FreeUntil(at)))
		}
	}
}

// unused reports whether a name is free and nobody waits for it.
func unused(s driver.Status) bool {
	return len(s.Holders) == 0 && len(s.Waiters) == 0 && s.NotBefore.IsZero()
}

// parseStatus parses the reply of the status script, and the node's time in it. An empty list is
// encoded as {}.
func parseStatus(name, text string) (driver.Status, int64, error) {
	var raw struct {
		Now       string          `json:"now"`
		Mode      string          `json:"mode"`
		NotBefore string          `json:"notbefore"`
		Holders   json.RawMessage `json:"holders"` // text, end in milliseconds, foreign text
		Waiters   json.RawMessage `json:"waiters"` // text
	}
	s := driver.Status{Name: name}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return s, 0, fmt.Errorf("%w: unexpected reply of the status script: %.100q", driver.ErrUnavailable, text)
	}
	if raw.Mode == "s" {
		s.Mode = driver.Shared
	}
	now := redisfmt.Number(raw.Now)
	if nb := redisfmt.Number(raw.NotBefore); nb > now {
		s.NotBefore = time.Now().Add(time.Duration(nb-now) * time.Microsecond)
	}
	var rows [][]string
	_ = json.Unmarshal(raw.Holders, &rows) // {} leaves it empty
	for _, row := range rows {
		if h, ok := readHolder(row, now); ok {
			s.Holders = append(s.Holders, h)
		}
	}
	var waiters []string
	_ = json.Unmarshal(raw.Waiters, &waiters)
	for _, text := range waiters {
		if h, ok := parseHolder(text); ok {
			s.Waiters = append(s.Waiters, driver.Waiter{Identity: h.Identity, Owner: h.Owner, Since: h.Since})
		}
	}
	return s, now, nil
}

// readHolder parses a row about a holder: its text, the end of its lease, and, for another
// program's lock, the value of the key.
func readHolder(row []string, now int64) (h driver.Holder, ok bool) {
	if len(row) < 2 {
		return h, false
	}
	if row[0] == "" && len(row) > 2 {
		h, ok = driver.Holder{Owner: row[2], Foreign: true}, true
	} else {
		h, ok = parseHolder(row[0])
	}
	if end := redisfmt.Number(row[1]); end >= 0 {
		h.TTL = time.Duration(end-now/1000) * time.Millisecond
		ok = ok && h.TTL > 0
	}
	return h, ok
}

// merge keeps what a majority of all nodes agrees on.
func (q *lister) merge(lists []statuses) []driver.Status {
	names := map[string]bool{}
	for _, l := range lists {
		for name := range l {
			names[name] = true
		}
	}
	var out []driver.Status
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if s := q.mergeOne(name, lists); !unused(s) {
			out = append(out, s)
		}
	}
	return out
}

// mergeOne merges the statuses of one name. Holders and waiters that fewer than a majority report
// are left out: they are just coming or going, or are stale. A name is closed as long as a majority
// closes it.
func (q *lister) mergeOne(name string, lists []statuses) driver.Status {
	s := driver.Status{Name: name}
	seen, waiting := map[string][]driver.Holder{}, map[string][]driver.Waiter{}
	var ends []int64 // in microseconds since 1970
	for _, l := range lists {
		one := l[name]
		if !one.NotBefore.IsZero() {
			ends = append(ends, one.NotBefore.UnixMicro())
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
		if len(hs) >= q.set.need {
			s.Holders = append(s.Holders, agree(hs, q.set.need))
		}
	}
	for _, ws := range waiting {
		if len(ws) >= q.set.need {
			s.Waiters = append(s.Waiters, ws[0])
		}
	}
	sort.SliceStable(s.Waiters, func(i, j int) bool { return s.Waiters[i].Since.Before(s.Waiters[j].Since) })
	for i := range s.Waiters {
		s.Waiters[i].Position = i + 1
	}
	if len(ends) >= q.set.need {
		slices.Sort(ends)
		s.NotBefore = time.UnixMicro(ends[len(ends)-q.set.need])
	}
	sort.SliceStable(s.Holders, func(i, j int) bool { return s.Holders[i].Token < s.Holders[j].Token })
	return s
}

// agree merges the reports about one holder. Its token is the one that a majority reports,
// otherwise the greatest, because a node that got the request late may report a greater one. Its
// lease lasts as long as it does on a majority.
func agree(hs []driver.Holder, need int) driver.Holder {
	sort.SliceStable(hs, func(i, j int) bool { return hs[i].TTL > hs[j].TTL })
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
