package lockmetrics_test

import (
	"context"
	"errors"
	"fmt"
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

// series is a series of a test.
type series struct{ lockmetrics.Labels }

func newTable(class func(string) string) *lockmetrics.Table[series] {
	return lockmetrics.NewTable(class, func(l lockmetrics.Labels) *series { return &series{l} })
}

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
		if got := newTable(nil).Of("memory", "exclusive", c.kind, c.name); got.Class != c.want {
			t.Errorf("the class of the %s %q is %q, want %q", c.kind, c.name, got.Class, c.want)
		}
	}
}

// Each kind has 20 classes, and what comes later shares one series. A series is made once.
func TestTable(t *testing.T) {
	table := newTable(nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { // ends after its calls
			for i := range 50 {
				table.Of("memory", "exclusive", fencelock.KindLock, fmt.Sprint("lock", i))
			}
		})
	}
	all.Wait()
	if n := len(table.All()); n != lockmetrics.MaxClasses+1 {
		t.Errorf("%d series, want %d and one for the rest", n, lockmetrics.MaxClasses)
	}
	one := table.Of("memory", "exclusive", fencelock.KindLock, "lock0")
	if two := table.Of("memory", "exclusive", fencelock.KindLock, "lock0:1"); one != two {
		t.Error("one class has two series")
	}
	if rest := table.Of("memory", "exclusive", fencelock.KindLock, "another"); rest.Class != lockmetrics.Other {
		t.Errorf("one class more is %q", rest.Class)
	}
	if shared := table.Of("memory", "shared", fencelock.KindLock, "lock0"); shared.Class != "lock0" || shared == one {
		t.Errorf("another mode of a class is %+v", shared)
	}
	if leader := table.Of("memory", "exclusive", fencelock.KindElection, "billing"); leader.Class != "billing" {
		t.Errorf("the first class of another kind is %q", leader.Class)
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
		var all []*lockmetrics.Held[series]
		ctx := t.Context()
		for i := range 4 {
			all = append(all, lockmetrics.Begin(ctx, fencelock.TraceLock{Name: "a", Token: int64(i + 1)}, &series{}, &holds))
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
		if lockmetrics.HeldFrom[series](ctx, fencelock.TraceLock{Name: "a", Token: 4}) != all[3] {
			t.Error("the context of the last lock has another hold")
		}
		if lockmetrics.HeldFrom[series](ctx, fencelock.TraceLock{Name: "a", Token: 5}) != nil {
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
		lockmetrics.Begin(t.Context(), fencelock.TraceLock{}, &series{}, &holds)
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
