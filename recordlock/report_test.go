package recordlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

// lagging are records whose next report is an old one, from a server that is behind the others.
type lagging struct {
	*slowClock
	swap time.Duration                 // until the answer to a Swap arrives
	old  atomic.Pointer[driver.Record] // the report
}

func (l *lagging) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	version, err := l.slowClock.Swap(ctx, key, value, version, ttl)
	time.Sleep(l.swap)
	return version, err
}

func (l *lagging) Await(ctx context.Context, key, version string) (driver.Record, error) {
	if rec := l.old.Swap(nil); rec != nil {
		return *rec, nil
	}
	return l.slowClock.Await(ctx, key, version)
}

// A request is not refused by a report that is older than the request, although the report was asked for
// later.
func TestOldReportDoesNotRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scene{t, memlock.New(nil), true}
		l := &lagging{slowClock: &slowClock{Awaiter: s.store.Records().(driver.Awaiter), takes: 500 * time.Millisecond}, swap: 2 * time.Second}
		e := recordlock.New(l, nil)
		defer e.Close()
		other, _ := s.client()
		req := request()
		req.TTL, req.Mode = time.Hour, driver.Shared
		req.OnLost = func(error) {}
		kept := s.acquire(e, req)
		l.fails.Store(true)
		time.Sleep(4 * time.Minute)                                                // the last reading is too old then
		go func() { s.ok(e.Renew(t.Context(), []driver.Lease{lease(kept)})[0]) }() // ends with the answer
		time.Sleep(1500 * time.Millisecond)
		s.acquire(other, req)
		old, err := s.store.Records().Get(t.Context(), key)
		s.ok(err)
		l.old.Store(&old)
		target := s.acquire(other, req)
		time.AfterFunc(5*time.Second, func() { l.fails.Store(false) })
		_, err = e.BreakOwner(t.Context(), name, target.Owner, "maintenance")
		s.ok(err)
	})
}

// The records for programs report changes if those of the engine do.
func TestRecordsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		defer store.Kill()
		e := recordlock.New(store.Records(), nil)
		defer e.Close()
		records, ok := e.Records().(driver.Awaiter)
		if !ok {
			t.Fatal("they do not")
		}
		if e.Records() != driver.Records(records) {
			t.Error("two calls return different records")
		}
		time.AfterFunc(time.Second, func() { _, _ = store.Records().Swap(t.Context(), "job", []byte("done"), "", 0) })
		if rec, err := records.Await(t.Context(), "job", ""); err != nil || string(rec.Value) != "done" {
			t.Errorf("%q, %v", rec.Value, err)
		}
		if _, ok := recordlock.New(polled{store.Records()}, nil).Records().(driver.Awaiter); ok {
			t.Error("records that must be polled are an Awaiter")
		}
	})
}
