package lockmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/observe/lockmetrics"
)

func TestClass(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct{ kind, name, want string }{
		{fencelock.KindLock, "invoice:42", "invoice"},
		{fencelock.KindLock, "invoice/42:7", "invoice"},
		{fencelock.KindLock, "nightly", "nightly"},
		{fencelock.KindLock, "/srv/backup", "srv"},
		{fencelock.KindLock, "://", lockmetrics.Other},
		{fencelock.KindLock, "", lockmetrics.Other},
		{fencelock.KindLock, "\xff:1", lockmetrics.Other},
		{fencelock.KindLock, long, lockmetrics.Other},
		{fencelock.KindSemaphore, "gpu:1", "gpu"},
		{fencelock.KindElection, "tenants/7", "tenants/7"},
		{fencelock.KindCron, "reports:nightly", "reports:nightly"},
		{fencelock.KindCron, "reports:nightly@3m0s", "reports:nightly"},
		{lockmetrics.KindRate, "api:v2", "api:v2"},
	} {
		if _, got := lockmetrics.NewTable().Of("exclusive", c.kind, c.name); got != c.want {
			t.Errorf("the class of the %s %q is %q, want %q", c.kind, c.name, got, c.want)
		}
	}
}

// Each kind has 20 classes, and what comes later shares one series. A series is made once.
func TestTable(t *testing.T) {
	table := lockmetrics.NewTable()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { // ends after its calls
			for i := range 50 {
				table.Of("exclusive", fencelock.KindLock, fmt.Sprint("lock", i))
			}
		})
	}
	all.Wait()
	if n := table.Len(); n != lockmetrics.MaxClasses+1 {
		t.Errorf("%d series, want %d and one for the rest", n, lockmetrics.MaxClasses)
	}
	one, _ := table.Of("exclusive", fencelock.KindLock, "lock0")
	if two, _ := table.Of("exclusive", fencelock.KindLock, "lock0:1"); one != two {
		t.Error("one class has two series")
	}
	if _, rest := table.Of("exclusive", fencelock.KindLock, "another"); rest != lockmetrics.Other {
		t.Errorf("one class more is %q", rest)
	}
	if shared, class := table.Of("shared", fencelock.KindLock, "lock0"); class != "lock0" || shared == one {
		t.Errorf("another mode of a class is %+v", shared)
	}
	if _, leader := table.Of("exclusive", fencelock.KindElection, "billing"); leader != "billing" {
		t.Errorf("the first class of another kind is %q", leader)
	}
}

func TestFailure(t *testing.T) {
	held := &fencelock.HeldError{Name: "a"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{held, "held"},
		{errors.Join(held, context.DeadlineExceeded), "timeout"},
		{errors.Join(held, context.Canceled), "canceled"},
		{errors.Join(fencelock.ErrUnavailable, context.Canceled), "canceled"},
		{errors.Join(fencelock.ErrUnavailable, context.DeadlineExceeded), "unavailable"},
		{fencelock.ErrUnavailable, "unavailable"},
		{fencelock.ErrConfig, "config"},
		{fencelock.ErrInvalid, "invalid"},
		{fencelock.ErrUnsupported, "invalid"},
		{errors.New("broken"), lockmetrics.Other},
	} {
		if got := lockmetrics.Failure(c.err); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}

func TestLoss(t *testing.T) {
	for _, c := range []struct {
		reason error
		want   string
	}{
		{fmt.Errorf("%w: no route", hold.ErrDeadline), "expired"},
		{fmt.Errorf("%w: maintenance", driver.ErrBroken), "broken"},
		{driver.ErrLost, "gone"},
		{driver.ErrNotHeld, "gone"},
	} {
		if got := lockmetrics.Loss(&fencelock.LostError{Reason: c.reason}); got != c.want {
			t.Errorf("%v is %q, want %q", c.reason, got, c.want)
		}
	}
}

// The oldest hold is found whatever the order in which holds end, and a lock's context finds its own
// hold only.
func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var holds lockmetrics.Holds
		var all []*lockmetrics.Holding
		ctx := t.Context()
		for i := range 4 {
			all = append(all, holds.Begin(ctx, fencelock.TraceLock{Name: "a", Token: int64(i + 1)}))
			ctx = all[i]
			time.Sleep(time.Minute)
		}
		want := func(n int, oldest time.Duration) {
			t.Helper()
			if gotN, got := holds.State(); gotN != n || got != oldest {
				t.Errorf("%d holds, the oldest for %v; want %d, %v", gotN, got, n, oldest)
			}
		}
		want(4, 4*time.Minute)
		if lockmetrics.HoldingFrom(ctx, fencelock.TraceLock{Name: "a", Token: 4}) != all[3] {
			t.Error("the context of the last lock has another hold")
		}
		if lockmetrics.HoldingFrom(ctx, fencelock.TraceLock{Name: "a", Token: 5}) != nil {
			t.Error("a lock that is not held has the hold of its caller")
		}
		all[1].End()
		want(3, 4*time.Minute)
		all[0].End()
		want(2, 2*time.Minute)
		all[3].End()
		want(1, 2*time.Minute)
		all[2].End()
		want(0, 0)
		holds.Begin(t.Context(), fencelock.TraceLock{})
		want(1, 0)
	})
}

func TestDecision(t *testing.T) {
	for want, d := range map[string]fencelock.TraceRate{
		"granted": {Asked: 2, Granted: 1, Err: fencelock.ErrUnavailable},
		"failed":  {Asked: 2, Err: fencelock.ErrUnavailable},
		"limited": {Asked: 2},
	} {
		if got := lockmetrics.Decision(d); got != want {
			t.Errorf("%+v is %q, want %q", d, got, want)
		}
	}
}

// TestTwoRecorders: the hooks of two exporters can be joined in one tracer.
func TestTwoRecorders(t *testing.T) {
	type counts map[string]float64
	var all [2]counts
	var recorders [2]*lockmetrics.Recorder
	for i := range all {
		all[i] = counts{}
		recorders[i] = lockmetrics.New(nil, func(m *lockmetrics.Metric, _ []string) lockmetrics.Series {
			return func(context.Context, float64) { all[i][m.Name]++ }
		})
	}
	a, b, lock := recorders[0].Tracer(), recorders[1].Tracer(), fencelock.TraceLock{Name: "a:1", Token: 1}
	ctx := b.HoldStart(a.HoldStart(t.Context(), lock), lock)
	for _, tracer := range []*fencelock.Tracer{a, b} {
		tracer.HoldEnd(ctx, fencelock.TraceHoldEnd{TraceLock: lock})
	}
	for i, r := range recorders {
		if n := all[i]["hold.duration"]; n != 1 {
			t.Errorf("recorder %d has recorded %v durations of one hold", i, n)
		}
		r.Read(func(m *lockmetrics.Metric, _ []string, value float64) {
			if m.Name == "hold.count" && value != 0 {
				t.Errorf("recorder %d: %v locks are held", i, value)
			}
		})
	}
}

// Each metric is recorded, with one value for each of its labels, and with the words that it declares.
func TestMetricsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[*lockmetrics.Metric]bool{}
		see := func(m *lockmetrics.Metric, values []string) {
			seen[m] = true
			if last := values[len(values)-1]; len(values) != len(m.Labels) || m.Words != nil && !slices.Contains(m.Words, last) {
				t.Errorf("%s has the labels %q and the words %q, and is recorded with %q", m.Name, m.Labels, m.Words, values)
			}
		}
		r := lockmetrics.New(nil, func(m *lockmetrics.Metric, values []string) lockmetrics.Series {
			see(m, values)
			return func(context.Context, float64) {}
		})
		tracer, lock := r.Tracer(), fencelock.TraceLock{Name: "billing", Kind: fencelock.KindElection, Engine: "memory"}
		tracer.HoldStart(t.Context(), lock)
		tracer.RenewEnd(t.Context(), fencelock.TraceRenewEnd{Engine: "memory"})
		for _, outcome := range []string{"ok", "failed", "claimed", "overlapped", "late", "paused", "error"} {
			tracer.TickEnd(t.Context(), fencelock.TraceTick{Job: "nightly", Outcome: outcome})
		}
		for _, outcome := range []string{"done", "failed", "lost", "stored", "in_progress", "mismatch", "error"} {
			tracer.OnceEnd(t.Context(), fencelock.TraceOnce{Outcome: outcome})
		}
		tracer.RateEnd(t.Context(), fencelock.TraceRate{Granted: 1})
		r.Read(func(m *lockmetrics.Metric, values []string, _ float64) { see(m, values) })
		for _, m := range lockmetrics.Metrics() {
			if !seen[m] {
				t.Errorf("%s is not recorded", m.Name)
			}
		}
	})
}
