package redislock

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// lister lists what is held.
type lister struct {
	*client
	index  *nameIndex
	marker *marker
}

// List returns what a query matches. Names that are free leave the index, so that it does
// not grow; a name that was asked for exactly, or found among the keys, need not be in it.
func (ls *lister) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	ls.marker.remark()
	names, err := ls.names(ctx, q)
	if err != nil {
		return nil, err
	}
	var list []driver.Status
	for part := range slices.Chunk(slices.Sorted(maps.Keys(names)), nameindex.Size) {
		some, free, at, err := ls.statuses(ctx, part)
		if err != nil {
			return nil, unavailable(err)
		}
		list = append(list, some...)
		if len(free) > 0 && !q.Exact && !q.Scan {
			ls.index.drop(ctx, free, at)
		}
	}
	return list, nil
}

// names collects the names that may have something to show.
func (ls *lister) names(ctx context.Context, q driver.Query) (map[string]bool, error) {
	names := map[string]bool{}
	if q.Exact {
		names[q.Prefix] = true
		return names, driver.CheckName(q.Prefix)
	}
	if !q.Scan {
		if err := ls.index.read(ctx, q, names); !redisconn.Denied(err) {
			return names, unavailable(err)
		}
	}
	return names, unavailable(ls.scan(ctx, q, names))
}

// scan collects names by a look at all keys: a name that is waited for has a queue, and one
// that is closed by a minimum hold a key that says so, while the lock itself may be free.
func (ls *lister) scan(ctx context.Context, q driver.Query, names map[string]bool) error {
	for _, begin := range [...]string{"", "queue:", "queue:{", "closed:", "closed:{"} {
		if begin != "" {
			begin = ls.base() + begin
		}
		err := ls.conn.Scan(ctx, redisfmt.Literal(begin+ls.cfg.Prefix+"lock:"+q.Prefix)+"*", func(found []string) error {
			for _, key := range found {
				if name, ok := ls.nameOf(key); ok && q.Matches(name) {
					names[name] = true
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// statuses asks for many names at once, and returns those apart that are free, with
// the server's time when the first of them was.
func (ls *lister) statuses(ctx context.Context, names []string) (list []driver.Status, free []string, at int64, err error) {
	calls := make([]redisconn.Call, 0, len(names))
	asked := make([]string, 0, len(names))
	for _, name := range names {
		lock, err := ls.lockKey(name)
		if err != nil {
			continue // a key of some other program
		}
		calls = append(calls, redisconn.Call{Script: statusScript, Keys: []string{lock}, Args: []string{ls.base()}})
		asked = append(asked, name)
	}
	if len(calls) == 0 {
		return nil, nil, 0, nil
	}
	at = math.MaxInt64
	for i, r := range ls.conn.Eval(ctx, calls) {
		if r.Err != nil {
			return nil, nil, 0, r.Err
		}
		var raw rawStatus
		if err := json.Unmarshal([]byte(r.Text), &raw); err != nil {
			return nil, nil, 0, malformed(r.Text)
		}
		s := raw.status(asked[i])
		if len(s.Holders) > 0 || len(s.Waiters) > 0 || !s.NotBefore.IsZero() {
			list = append(list, s)
		} else {
			free, at = append(free, s.Name), min(at, redisfmt.Number(raw.Time))
		}
	}
	return list, free, at, nil
}
