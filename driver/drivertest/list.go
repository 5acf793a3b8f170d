package drivertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// query lists names through c, which must be a driver.Lister.
func (t *run) query(c Client, q driver.Query) []driver.Status {
	t.Helper()
	type answer struct {
		list []driver.Status
		err  error
	}
	a := within(t, "List", func(ctx context.Context) answer {
		l, err := c.(driver.Lister).List(ctx, q)
		return answer{l, err}
	})
	if a.err != nil {
		t.Fatalf("listing %+v: %v", q, a.err)
	}
	return a.list
}

// look returns what c lists under one name, or nil if c lists nothing at all.
func (t *run) look(c Client, name string) *driver.Status {
	t.Helper()
	if _, ok := c.(driver.Lister); !ok {
		return nil
	}
	var list []driver.Status
	t.eventually(t.patience, fmt.Sprintf("%q is listed once", name), func() bool {
		list = t.query(c, driver.Query{Prefix: name, Exact: true})
		return len(list) == 1
	})
	return &list[0]
}

// list: an engine that lists shows holders and waiters, with their identities,
// places and tokens, by prefix and by exact name.
func list(t *run) {
	cs := t.clients(3)
	if _, ok := cs[0].(driver.Lister); !ok {
		t.Skip("the engine is no driver.Lister")
	}
	h := t.hold(cs[0], t.request("list/b"))
	ws := t.line(2, cs[1:], t.request("list/b"))
	reader := t.hold(cs[1], t.shared("list/a"))
	t.hold(cs[1], t.shared("list/a"))
	t.hold(cs[2], t.request("list/bb"))
	t.hold(cs[2], t.request("unlisted"))
	t.listed(cs[0], driver.Query{Prefix: "list/"}, "list/a", "list/b", "list/bb")
	t.listed(cs[1], driver.Query{Prefix: "list/b"}, "list/b", "list/bb")
	t.listed(cs[1], driver.Query{Prefix: "list/b", Exact: true}, "list/b")
	t.listed(cs[2], driver.Query{Prefix: "list", Exact: true})

	if s := t.look(cs[2], "list/a"); s.Mode != driver.Shared || len(s.Holders) != 2 || s.Holders[0].Token != reader.Token {
		t.Errorf("two shared holders are listed as %+v", *s)
	}
	s := t.look(cs[2], "list/b")
	t.oneHolder(s, h)
	for i, w := range s.Waiters {
		if w.Position != i+1 || w.Identity != identity || w.Owner == "" || w.Owner == h.Owner {
			t.Errorf("waiter %d is listed as %+v", i+1, w)
		}
	}
	if len(s.Waiters) != len(ws) {
		t.Errorf("%d waiters are listed, %d wait", len(s.Waiters), len(ws))
	}
	h.free()
	if ordered(t.traits) {
		t.inOrder(ws...)
	} else {
		t.inAnyOrder(ws[0], ws[1])
	}
	t.eventually(t.patience, "a free name is not listed", func() bool {
		return len(t.query(cs[0], driver.Query{Prefix: "list/b", Exact: true})) == 0
	})
}

// listed fails the case unless the query gives these names, in order.
func (t *run) listed(c Client, q driver.Query, want ...string) {
	t.Helper()
	var got []string
	t.eventually(t.patience, fmt.Sprintf("%+v lists %q", q, want), func() bool {
		got = nil
		for _, s := range t.query(c, q) {
			got = append(got, s.Name)
		}
		return slices.Equal(got, want)
	})
}

// oneHolder fails the case unless s shows h and nobody else as the holder.
func (t *run) oneHolder(s *driver.Status, h *held) {
	t.Helper()
	if s.Mode != driver.Exclusive || len(s.Holders) != 1 {
		t.Fatalf("one exclusive holder is listed as %+v", *s)
	}
	got := s.Holders[0]
	if got.Identity != identity || got.Owner != h.Owner || got.Token != h.Token || got.Since.IsZero() || got.Foreign {
		t.Errorf("the holder %+v is listed as %+v", h.Grant, got)
	}
	if ok := got.TTL > 0 && got.TTL <= t.long; ok != t.traits.Leased {
		t.Errorf("a lease of %v is listed with %v left", t.long, got.TTL)
	}
	if got.Lease != 0 && (got.Lease != t.long || !t.traits.Leased) {
		t.Errorf("a lease of %v is listed as one of %v", t.long, got.Lease)
	}
}
