package otelfencelock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/otelfencelock"
	"github.com/fencelock/fencelock/ratelimit"
	"github.com/fencelock/fencelock/semaphore"
)

// newLocks returns a Locker on an engine in memory.
func newLocks(tracer *fencelock.Tracer) (*fencelock.Locker, *memlock.Engine) {
	engine := memlock.New(nil)
	return fencelock.New(engine, &fencelock.Config{Tracer: tracer}).With(fencelock.Options{TTL: time.Minute}), engine
}

func acquire(t *testing.T, locks *fencelock.Locker, name string) *fencelock.Lock {
	t.Helper()
	lock, err := locks.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

const (
	memory    = "engine=memory"
	exclusive = "mode=exclusive"
	plain     = "kind=lock"
	invoice   = "class=invoice"
)

// A lock that is held for its maximum is neither lost nor released by its holder.
func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, collect := meter()
		locks, _ := newLocks(tracer)
		acquire(t, locks.With(fencelock.Options{MaxHold: time.Minute}), "invoice:1")
		time.Sleep(time.Minute)
		synctest.Wait()
		m := collect(t)
		m.want(t, 1, "fencelock.hold.duration", memory, exclusive, plain, invoice, "hold.end=max_hold")
		m.want(t, 0, "fencelock.hold.losses", memory, invoice, "error.type=expired")
		m.want(t, 0, "fencelock.hold.count", invoice)
	})
}

// A lock that is waited for, held and released.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, collect := meter()
		locks, _ := newLocks(tracer)
		first := acquire(t, locks, "invoice:1")
		time.AfterFunc(10*time.Second, func() { _ = first.Release() })
		next := make(chan *fencelock.Lock)
		go func() { next <- acquire(t, locks, "invoice:1") }() // ends when the first is released
		time.Sleep(5 * time.Second)
		m := collect(t)
		m.want(t, 1, "fencelock.hold.count", memory, exclusive, plain, invoice)
		m.want(t, 1, "fencelock.wait.count", memory, exclusive, plain, invoice)
		m.want(t, 5, "fencelock.hold.oldest", memory, exclusive, plain, invoice)
		m.want(t, 1, "fencelock.acquire.duration", memory, exclusive, plain, invoice, "contended=false")
		for _, loss := range []string{"expired", "broken", "gone"} {
			m.want(t, 0, "fencelock.hold.losses", memory, invoice, "error.type="+loss)
		}
		second := <-next
		time.Sleep(25 * time.Second)
		_ = second.Release()
		synctest.Wait()
		m = collect(t)
		m.want(t, 0, "fencelock.hold.count", invoice)
		m.want(t, 0, "fencelock.wait.count", invoice)
		m.want(t, 0, "fencelock.hold.oldest", invoice)
		m.want(t, 1, "fencelock.acquire.duration", invoice, "contended=true")
		m.want(t, 2, "fencelock.hold.duration", memory, exclusive, plain, invoice, "hold.end=released")
		m.want(t, 2, "fencelock.release.duration", memory, exclusive, plain, invoice)
		m.want(t, 1, "fencelock.renewal.duration", memory)
		m.want(t, 1, "fencelock.renewal.margin", memory)
		m.want(t, 1, "fencelock.renewal.locks", memory, "result=renewed")
		m.want(t, 0, "fencelock.renewal.locks", memory, "result=failed")
		if sum := m["fencelock.renewal.margin"][0].sum; sum < 0.57 || sum > 0.67 {
			t.Errorf("the margin is %v, want two thirds less the safety margin", sum)
		}
		if sum := m["fencelock.hold.duration"][0].sum; sum != 35 {
			t.Errorf("locks were held for %v s, want 35", sum)
		}
	})
}

// Each way to lose a lock has its error.type.
func TestLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, collect := meter()
		locks, engine := newLocks(tracer)
		lose := func(name string, end func()) {
			lock := acquire(t, locks, name)
			end()
			<-lock.Context().Done()
			_ = lock.Release()
		}
		lose("a", func() { engine.Lose("a") })
		lose("b", func() { _, _ = locks.Break(t.Context(), "b", "maintenance") })
		lose("c", func() { engine.Refuse(errors.New("down")) })
		synctest.Wait()
		m := collect(t)
		m.want(t, 1, "fencelock.hold.losses", "class=a", "error.type=gone")
		m.want(t, 1, "fencelock.hold.losses", "class=b", "error.type=broken")
		m.want(t, 1, "fencelock.hold.losses", "class=c", "error.type=expired")
		m.want(t, 3, "fencelock.hold.losses")
		m.want(t, 3, "fencelock.hold.duration", "hold.end=lost")
		m.want(t, 0, "fencelock.hold.count")
		m.want(t, 1, "fencelock.release.duration", "class=c", "error.type=unavailable")
		if failed, _ := m.sum("fencelock.renewal.locks", "result=failed"); failed == 0 {
			t.Error("no renewal has failed")
		}
	})
}

// Each way to fail has its error.type.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, collect := meter()
		locks, engine := newLocks(tracer)
		held := acquire(t, locks, "a")
		_, _ = locks.TryAcquire(t.Context(), "a")
		_, _ = locks.With(fencelock.Options{Wait: time.Second}).Acquire(t.Context(), "a")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, _ = locks.Acquire(ctx, "a")
		_, _ = locks.With(fencelock.Options{MinHold: time.Second, Shared: true}).TryAcquire(t.Context(), "a")
		m := collect(t)
		m.want(t, 0, "fencelock.acquire.failures", "error.type=unavailable")
		engine.Refuse(errors.New("down"))
		_, _ = locks.TryAcquire(t.Context(), "a")
		engine.Refuse(nil)
		_ = held.Release()
		m = collect(t)
		for _, failure := range []string{"held", "timeout", "canceled", "invalid", "unavailable"} {
			m.want(t, 1, "fencelock.acquire.failures", memory, plain, "class=a", "error.type="+failure)
		}
		m.want(t, 0, "fencelock.wait.count")
	})
}

// At most 20 classes of each kind are series; the rest is one.
func TestClasses(t *testing.T) {
	tracer, collect := meter()
	locks, _ := newLocks(tracer)
	for i := range 30 {
		_ = acquire(t, locks, fmt.Sprintf("class%d:%d", i, i)).Release()
		_ = acquire(t, locks, fmt.Sprintf("class%d/%d", i, i)).Release()
	}
	m := collect(t)
	if n := len(m["fencelock.hold.duration"]); n != 21 {
		t.Errorf("%d series, want 20 classes and one for the rest", n)
	}
	m.want(t, 2, "fencelock.hold.duration", "class=class19")
	m.want(t, 20, "fencelock.hold.duration", "class=_OTHER")
	_ = election.Run(t.Context(), locks, "tenants/7", func(context.Context) error { return nil })
	collect(t).want(t, 1, "fencelock.hold.duration", "class=tenants/7", "kind=election")

	tracer, collect = meter(otelfencelock.WithClass(func(name string) string { return name[:1] }))
	locks, _ = newLocks(tracer)
	_ = acquire(t, locks, "invoice:1").Release()
	collect(t).want(t, 1, "fencelock.hold.duration", "class=i")
}

// A leader is counted as one, and neither it nor a standby looks like a lock.
func TestElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, collect := meter()
		locks, _ := newLocks(tracer)
		ctx, cancel := context.WithCancel(t.Context())
		serve := func(ctx context.Context) error { <-ctx.Done(); return nil }
		done := make(chan error, 2)
		go func() { done <- election.Run(ctx, locks, "billing", serve) }() // ends with ctx
		synctest.Wait()
		go func() { done <- election.Run(ctx, locks, "billing", serve) }() // ends with ctx
		time.Sleep(24 * time.Hour)
		m := collect(t)
		m.want(t, 1, "fencelock.election.leading", memory, "class=billing")
		m.want(t, 1, "fencelock.election.terms", memory, "class=billing")
		m.want(t, 1, "fencelock.wait.count", "kind=election")
		m.want(t, 24*3600, "fencelock.hold.oldest", "kind=election")
		if _, found := m.sum("fencelock.wait.count", plain); found {
			t.Error("a standby waits like one for a lock")
		}
		cancel()
		<-done
		<-done
		collect(t).want(t, 0, "fencelock.election.leading", memory, "class=billing")
	})
}

// The other recipes report through the Locker, and a limiter through its config.
func TestRecipes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, collect := meter()
		locks, engine := newLocks(tracer)
		job := cron.New(locks, "reports:nightly", nil)
		now := time.Now()
		for range 2 {
			_ = job.Tick(t.Context(), now, func(context.Context) error { time.Sleep(time.Second); return errors.New("broken") })
		}
		store := idempotent.New(locks, engine.Records(), nil)
		for range 2 {
			_, _ = idempotent.Do(t.Context(), store, "payment:7", func(context.Context) (int, error) { return 7, nil })
		}
		limiter := ratelimit.New(engine, "api", ratelimit.Limit{Events: 1, Burst: 1}, &ratelimit.Config{OnDecision: tracer.RateEnd})
		for range 2 {
			_, _ = limiter.Allow(t.Context(), "client")
		}
		engine.Refuse(errors.New("down"))
		_, _ = limiter.Allow(t.Context(), "client")
		engine.Refuse(nil)
		permit, err := semaphore.New(locks, "gpu", 2).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		f, err := fence.From(permit.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Refuse(permit.Context(), "row", 0)
		m := collect(t)
		m.want(t, 1, "fencelock.cron.ticks", memory, "class=reports:nightly", "result=failed")
		m.want(t, 1, "fencelock.cron.ticks", "class=reports:nightly", "result=claimed")
		m.want(t, 0, "fencelock.cron.ticks", "class=reports:nightly", "result=ok")
		m.want(t, 1, "fencelock.cron.run.duration", "class=reports:nightly", "result=failed")
		m.want(t, 1, "fencelock.idempotent.outcomes", memory, "class=idempotent", "result=done")
		m.want(t, 1, "fencelock.idempotent.outcomes", "result=stored")
		m.want(t, 1, "fencelock.ratelimit.decisions", memory, "class=api", "result=granted")
		m.want(t, 1, "fencelock.ratelimit.decisions", "class=api", "result=limited")
		m.want(t, 1, "fencelock.ratelimit.decisions", "class=api", "result=failed", "error.type=unavailable")
		m.want(t, 1, "fencelock.hold.count", "kind=semaphore", "mode=shared", "class=gpu")
		m.want(t, 1, "fencelock.fence.refusals", memory, "kind=semaphore", "class=gpu")
		_ = permit.Release()
	})
}
