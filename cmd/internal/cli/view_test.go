//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/google/go-cmp/cmp"
)

func TestStatusJSON(t *testing.T) {
	since := time.Date(2026, 1, 2, 15, 4, 5, 6_000_000, time.FixedZone("", 3600))
	status := driver.Status{
		Name: "a\x1b\u009b\U000E0001é", Mode: driver.Shared, Limit: 3, NotBefore: since.Add(time.Minute),
		Holders: []driver.Holder{{
			Identity: driver.Identity{Host: "h", PID: 7, Note: "n", Trace: "00-1", Kind: "election", MaxHold: time.Hour},
			Owner:    "o", Token: 9, Since: since, TTL: 1500 * time.Millisecond, Lease: 30 * time.Second, Foreign: true,
		}},
		Waiters: []driver.Waiter{{Identity: driver.Identity{Host: "h", PID: 8, Note: "w"}, Owner: "p", Position: 1}},
	}
	want := map[string]any{
		"name": status.Name, "mode": "shared", "limit": 3.0, "not_before": "2026-01-02T14:05:05.006Z",
		"holders": []any{map[string]any{
			"owner": "o", "token": 9.0, "host": "h", "pid": 7.0, "note": "n", "trace": "00-1", "kind": "election",
			"since": "2026-01-02T14:04:05.006Z", "ttl_ms": 1500.0, "lease_ms": 30000.0, "foreign": true, "max_until": "2026-01-02T15:04:05.006Z",
		}},
		"waiters": []any{map[string]any{"owner": "p", "host": "h", "pid": 8.0, "note": "w", "since": nil, "position": 1.0}},
	}
	var out bytes.Buffer
	if err := printJSON(&out, viewOf(status)); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if bytes.ContainsAny(out.Bytes(), "\x1b\u009b\U000E0001") {
		t.Errorf("unprintable text in %q", out.String())
	}
}

func TestMode(t *testing.T) {
	for want, s := range map[string]driver.Status{
		"free":      {},
		"closed":    {NotBefore: time.Now()},
		"exclusive": {Waiters: make([]driver.Waiter, 1)},
		"shared/2":  {Mode: driver.Shared, Limit: 2, Holders: make([]driver.Holder, 1)},
	} {
		if got := modeLimit(s, 1); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTable(t *testing.T) {
	got := lockTable([]driver.Status{
		{Name: "a b", NotBefore: time.Now().Add(-time.Hour)},
		{Name: "c", Holders: []driver.Holder{{Foreign: true, TTL: 1234 * time.Millisecond, Identity: driver.Identity{Trace: "00-1"}}}},
		{Name: "d", Trouble: errors.New("stuck")},
		{Name: "e", Holders: []driver.Holder{{Foreign: true, Owner: "pod-c", Identity: driver.Identity{Host: "pod-c"}}}},
	})
	want := `NAME   MODE       HOLDER         SINCE    TTL   MAX  TOKEN  WAITERS  WAIT  NOTE
"a b"  closed     -              -        0s    -    -      0        -     -
c      exclusive  foreign        unknown  1.2s  -    0      0        -     -
d      unknown    -              -        -     -    -      0        -     may have changed: stuck
e      exclusive  foreign:pod-c  unknown  none  -    0      0        -     -
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestMaxLeft: a table and a status show what is left of a maximum hold.
func TestMaxLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			since, most    time.Duration
			table, details string
		}{
			{time.Hour, 0, "-", ""},
			{time.Minute, time.Hour, "59m0s", ", at most 59m0s more"},
			{0, 1500 * time.Millisecond, "1.5s", ", at most 1.5s more"},
			{time.Second, time.Second, "over", ", its maximum hold is over"},
			{time.Hour, time.Second, "over", ", its maximum hold is over"},
		} {
			h := driver.Holder{Since: time.Now().Add(-c.since), Identity: driver.Identity{MaxHold: c.most}}
			if maxLeft(h) != c.table || capped(h) != c.details {
				t.Errorf("%+v: %q, %q", c, maxLeft(h), capped(h))
			}
		}
		if h := (driver.Holder{Identity: driver.Identity{MaxHold: 1}}); maxLeft(h) != "-" {
			t.Errorf("a holder since an unknown time: %q", maxLeft(h))
		}
	})
}
