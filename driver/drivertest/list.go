package drivertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// listCases are about List.
var listCases = []Case{
	newCase("list", anyEngine, list),
}

// view is what one client lists.
type view struct {
	*run
	client Client
}

// view returns the view of a client.
func (t *run) view(c Client) view { return view{t, c} }

// can reports whether the client is a Lister.
func (t view) can() bool {
	_, ok := as[driver.Lister](t.client)
	return ok
}

// query calls List. The client must be a Lister.
func (t view) query(q driver.Query) []driver.Status {
	t.Helper()
	type answer struct {
		list []driver.Status
		err  error
	}
	a := within(t.run, "List", func(ctx context.Context) answer {
		l, err := t.client.(driver.Lister).List(ctx, q)
		return answer{l, err}
	})
	if a.err != nil {
		t.Fatalf("listing %+v: %v", q, a.err)
	}
	return a.list
}

// look returns the status listed for one name, or nil if the client is no Lister.
func (t view) look(name string) *driver.Status {
	t.Helper()
	if !t.can() {
		return nil
	}
	var list []driver.Status
	t.eventually(t.patience, fmt.Sprintf("%q is listed once", name), func() bool {
		list = t.query(driver.Query{Prefix: name, Exact: true})
		return len(list) == 1
	})
	return &list[0]
}

// waiters fails the case unless n waiters are listed. It does nothing if the client is no Lister.
func (t view) waiters(name string, n int) {
	t.Helper()
	if !t.can() {
		return
	}
	t.eventually(t.patience, fmt.Sprintf("%d waiters of %q are listed", n, name), func() bool {
		for _, s := range t.query(driver.Query{Prefix: name, Exact: true}) {
			return len(s.Waiters) == n
		}
		return n == 0
	})
}

// weighed fails the case unless List returns this limit, and holders and waiters with these
// weights. It does nothing if the client is no Lister.
func (t view) weighed(name string, limit int, holders, waiters []int) {
	t.Helper()
	if !t.can() {
		return
	}
	what := fmt.Sprintf("%q is listed with limit %d, holders of %v and waiters of %v", name, limit, holders, waiters)
	t.eventually(t.patience, what, func() bool {
		list := t.query(driver.Query{Prefix: name, Exact: true})
		if len(list) != 1 {
			return false
		}
		var in, next []int
		for _, h := range list[0].Holders {
			in = append(in, h.Weight)
		}
		for _, w := range list[0].Waiters {
			next = append(next, w.Weight)
		}
		return list[0].Limit == limit && slices.Equal(in, holders) && slices.Equal(next, waiters)
	})
}

// closed fails the case if List does not return the minimum hold of a name before its end. It does
// nothing if the client is no Lister.
func (t view) closed(name string, end time.Time) {
	t.Helper()
	if !t.can() {
		return
	}
	for looked := false; ; looked = true {
		list := t.query(driver.Query{Prefix: name, Exact: true})
		if len(list) == 1 && !list[0].NotBefore.IsZero() {
			return
		}
		if !time.Now().Before(end) {
			if looked {
				t.Errorf("a minimum hold is not listed: %+v", list)
			}
			return
		}
		time.Sleep(t.tick())
	}
}

// list: List returns holders and waiters with their identities, places and tokens, by prefix and by
// exact name.
//
// It fails an engine that omits identities, matches prefixes when an exact name was requested, or
// lists free names.
func list(t *run) {
	cs := t.clients(3)
	if !t.view(cs[0]).can() {
		t.Skip("the engine is no driver.Lister")
	}
	h := t.hold(cs[0], t.request("list/b"))
	ws := t.line(2, cs[1:], t.request("list/b"))
	reader := t.hold(cs[1], t.shared("list/a"))
	t.hold(cs[1], t.shared("list/a"))
	t.hold(cs[2], t.request("list/bb"))
	t.hold(cs[2], t.request("unlisted"))
	t.view(cs[0]).listed(driver.Query{Prefix: "list/"}, "list/a", "list/b", "list/bb")
	t.view(cs[1]).listed(driver.Query{Prefix: "list/b"}, "list/b", "list/bb")
	t.view(cs[1]).listed(driver.Query{Prefix: "list/b", Exact: true}, "list/b")
	t.view(cs[2]).listed(driver.Query{Prefix: "list", Exact: true})

	if s := t.view(cs[2]).look("list/a"); s.Mode != driver.Shared || len(s.Holders) != 2 || s.Holders[0].Token != reader.Token {
		t.Errorf("two shared holders are listed as %+v", *s)
	}
	s := t.view(cs[2]).look("list/b")
	h.alone(s)
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
		ws.inOrder()
	} else {
		line{ws[0], ws[1]}.inAnyOrder()
	}
	t.eventually(t.patience, "a free name is not listed", func() bool {
		return len(t.view(cs[0]).query(driver.Query{Prefix: "list/b", Exact: true})) == 0
	})
}

// listed fails the case unless the query returns these names, in order.
func (t view) listed(q driver.Query, want ...string) {
	t.Helper()
	var got []string
	t.eventually(t.patience, fmt.Sprintf("%+v lists %q", q, want), func() bool {
		got = nil
		for _, s := range t.query(q) {
			got = append(got, s.Name)
		}
		return slices.Equal(got, want)
	})
}

// alone fails the case unless s has h as its only holder.
func (h *held) alone(s *driver.Status) {
	t := h.t
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
