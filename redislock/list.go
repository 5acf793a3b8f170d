package redislock

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/words"
)

// List returns the names that are held, waited for or closed by a minimum hold. Unless
// the name is exact it looks at those that clients of this library have held, or waited
// for, for longer than half a second; with Scan, or where the user may not read their
// index, it looks through all keys of the server instead. It shows at most 1,000
// waiters of a name.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	e.remark()
	names, err := e.names(ctx, q)
	if err != nil {
		return nil, err
	}
	var list []driver.Status
	for part := range slices.Chunk(slices.Sorted(maps.Keys(names)), nameindex.Size) {
		some, free, at, err := e.statuses(ctx, part)
		if err != nil {
			return nil, unavailable(err)
		}
		list = append(list, some...)
		if len(free) > 0 && !q.Exact && !q.Scan {
			e.dropNames(ctx, free, at)
		}
	}
	return list, nil
}

// names collects the names that may have something to show.
func (e *Engine) names(ctx context.Context, q driver.Query) (map[string]bool, error) {
	names := map[string]bool{}
	if q.Exact {
		names[q.Prefix] = true
		return names, driver.CheckName(q.Prefix)
	}
	if !q.Scan {
		if err := e.indexed(ctx, q, names); !denied(err) {
			return names, unavailable(err)
		}
	}
	return names, unavailable(e.scan(ctx, q, names))
}

// scan collects names by a look at all keys.
func (e *Engine) scan(ctx context.Context, q driver.Query, names map[string]bool) error {
	literal := words.Literal(e.cfg.Prefix + "lock:" + q.Prefix)
	for _, prefix := range [...]string{"", "queue:", "fence:"} {
		for _, brace := range [...]string{"", "{"} {
			if prefix == "" && brace != "" {
				continue
			}
			err := e.conn.Scan(ctx, prefix+brace+literal+"*", func(found []string) error {
				for _, key := range found {
					if name, ok := e.nameOf(key); ok && q.Matches(name) {
						names[name] = true
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// statuses asks for many names at once, and returns those apart that are free, with
// the server's time when the first of them was.
func (e *Engine) statuses(ctx context.Context, names []string) (list []driver.Status, free []string, at int64, err error) {
	calls := make([]Call, 0, len(names))
	asked := make([]string, 0, len(names))
	for _, name := range names {
		ks, err := e.keysOf(name)
		if err != nil {
			continue // a key of some other program
		}
		calls = append(calls, Call{Script: statusScript, Keys: ks.all()})
		asked = append(asked, name)
	}
	if len(calls) == 0 {
		return nil, nil, 0, nil
	}
	at = math.MaxInt64
	for i, r := range e.conn.Eval(ctx, calls) {
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
			free, at = append(free, s.Name), min(at, raw.now())
		}
	}
	return list, free, at, nil
}
