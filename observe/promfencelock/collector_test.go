package promfencelock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/promfencelock"
	"github.com/fencelock/fencelock/ratelimit"
	"github.com/fencelock/fencelock/semaphore"
)

// program is a program with locks in memory and metrics.
type program struct {
	locks   *fencelock.Locker
	engine  *memlock.Engine
	tracer  *fencelock.Tracer
	metrics *prometheus.Registry
}

func newProgram(t *testing.T, cfg *promfencelock.Config) *program {
	t.Helper()
	c := promfencelock.New(cfg)
	p := &program{engine: memlock.New(nil), tracer: c.Tracer(), metrics: prometheus.NewPedanticRegistry()}
	if err := p.metrics.Register(c); err != nil {
		t.Fatal(err)
	}
	p.locks = fencelock.New(p.engine, &fencelock.Config{Tracer: p.tracer}).With(fencelock.Options{TTL: time.Minute})
	return p
}

func (p *program) acquire(t *testing.T, name string) *fencelock.Lock {
	t.Helper()
	lock, err := p.locks.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// values returns the values of a metric by its labels, such as "class=invoice,engine=memory". The
// value of a histogram is its count.
func (p *program) values(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := p.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if h := m.GetHistogram(); h != nil {
				value = float64(h.GetSampleCount())
				if h.GetSampleCount() > 0 && len(h.GetPositiveSpan()) == 0 && h.GetZeroCount() == 0 {
					t.Errorf("%s has no native histogram", name)
				}
			}
			values[strings.Join(labels, ",")] = value
		}
	}
	return values
}

// want fails the test unless the metric has the series with that value.
func (p *program) want(t *testing.T, value float64, name, labels string) {
	t.Helper()
	values := p.values(t, name)
	if got, ok := values[labels]; !ok || got != value {
		t.Errorf("%s{%s} is %v (found: %v), want %v; there is %v", name, labels, got, ok, value, values)
	}
}

const invoice = "class=invoice,%sengine=memory,%skind=lock,mode=exclusive"

// labels returns the labels of class invoice, with one more that sorts after class, or after engine.
func labels(afterClass, afterEngine string) string {
	if afterClass != "" {
		afterClass += ","
	}
	if afterEngine != "" {
		afterEngine += ","
	}
	return fmt.Sprintf(invoice, afterClass, afterEngine)
}

// A lock that is held for its maximum is neither lost nor released by its holder.
func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, nil)
		p.locks = p.locks.With(fencelock.Options{MaxHold: time.Minute})
		p.acquire(t, "invoice:1")
		time.Sleep(time.Minute)
		synctest.Wait()
		p.want(t, 1, "fencelock_hold_duration_seconds", labels("", "hold_end=max_hold"))
		p.want(t, 0, "fencelock_hold_losses_total", labels("", "error_type=expired"))
		p.want(t, 0, "fencelock_hold_count", labels("", ""))
	})
}

// A lock that is waited for, held and released.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, nil)
		first := p.acquire(t, "invoice:1")
		time.AfterFunc(10*time.Second, func() { _ = first.Release() })
		next := make(chan *fencelock.Lock)
		go func() { next <- p.acquire(t, "invoice:1") }() // ends when the first is released
		time.Sleep(5 * time.Second)
		plain := labels("", "")
		p.want(t, 1, "fencelock_hold_count", plain)
		p.want(t, 1, "fencelock_wait_count", plain)
		p.want(t, 5, "fencelock_hold_oldest_seconds", plain)
		p.want(t, 1, "fencelock_acquire_duration_seconds", labels("contended=false", ""))
		for _, loss := range []string{"expired", "broken", "gone"} {
			p.want(t, 0, "fencelock_hold_losses_total", labels("", "error_type="+loss))
		}
		second := <-next
		time.Sleep(25 * time.Second)
		_ = second.Release()
		synctest.Wait()
		p.want(t, 0, "fencelock_hold_count", plain)
		p.want(t, 0, "fencelock_wait_count", plain)
		p.want(t, 1, "fencelock_acquire_duration_seconds", labels("contended=true", ""))
		p.want(t, 2, "fencelock_hold_duration_seconds", labels("", "hold_end=released"))
		p.want(t, 2, "fencelock_release_duration_seconds", plain)
		p.want(t, 1, "fencelock_renewal_duration_seconds", "engine=memory")
		p.want(t, 1, "fencelock_renewal_margin", "engine=memory")
		p.want(t, 1, "fencelock_renewal_locks_total", "engine=memory,result=renewed")
	})
}

// Losses and failures have the type of their error.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, nil)
		lose := func(end func()) {
			lock := p.acquire(t, "invoice:1")
			_, _ = p.locks.TryAcquire(t.Context(), "invoice:1")
			end()
			<-lock.Context().Done()
			_ = lock.Release()
		}
		lose(func() { p.engine.Lose("invoice:1") })
		lose(func() { _, _ = p.locks.Break(t.Context(), "invoice:1", "maintenance") })
		lose(func() { p.engine.Refuse(errors.New("down")) })
		_, _ = p.locks.TryAcquire(t.Context(), "invoice:1")
		synctest.Wait()
		for _, loss := range []string{"expired", "broken", "gone"} {
			p.want(t, 1, "fencelock_hold_losses_total", labels("", "error_type="+loss))
		}
		p.want(t, 3, "fencelock_hold_duration_seconds", labels("", "hold_end=lost"))
		p.want(t, 3, "fencelock_acquire_failures_total", labels("", "error_type=held"))
		p.want(t, 1, "fencelock_acquire_failures_total", labels("", "error_type=unavailable"))
		p.want(t, 1, "fencelock_release_duration_seconds", labels("", "error_type=unavailable"))
	})
}

// A leader and a standby are not among the locks, and recipes report what they do.
func TestRecipes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		for range 2 {
			go func() { // ends with ctx
				done <- election.Run(ctx, p.locks, "billing", func(ctx context.Context) error { <-ctx.Done(); return nil })
			}()
			synctest.Wait()
		}
		term := "class=billing,engine=memory,kind=election,mode=exclusive"
		p.want(t, 1, "fencelock_election_leading", term)
		p.want(t, 1, "fencelock_election_terms_total", term)
		p.want(t, 1, "fencelock_wait_count", term)
		if n := len(p.values(t, "fencelock_wait_count")); n != 1 {
			t.Errorf("%d series of waiters, want those of the election alone", n)
		}
		cancel()
		<-done
		<-done
		p.want(t, 0, "fencelock_election_leading", term)

		now := time.Now()
		for range 2 {
			_ = cron.New(p.locks, "nightly", nil).Tick(t.Context(), now, func(context.Context) error { return nil })
		}
		p.want(t, 1, "fencelock_cron_ticks_total", "class=nightly,engine=memory,result=ok")
		p.want(t, 1, "fencelock_cron_ticks_total", "class=nightly,engine=memory,result=claimed")
		p.want(t, 0, "fencelock_cron_ticks_total", "class=nightly,engine=memory,result=failed")
		p.want(t, 1, "fencelock_cron_run_duration_seconds", "class=nightly,engine=memory,result=ok")

		store := idempotent.New(p.locks, p.engine.Records(), nil)
		_, _ = idempotent.Do(t.Context(), store, "payment:7", func(context.Context) (int, error) { return 7, nil })
		p.want(t, 1, "fencelock_idempotent_outcomes_total", "class=idempotent,engine=memory,result=done")

		limiter := ratelimit.New(p.engine, "api", ratelimit.Limit{Events: 1, Burst: 1}, &ratelimit.Config{OnDecision: p.tracer.RateEnd})
		for range 2 {
			_, _ = limiter.Allow(t.Context(), "client")
		}
		p.want(t, 1, "fencelock_ratelimit_decisions_total", "class=api,engine=memory,result=granted")
		p.want(t, 1, "fencelock_ratelimit_decisions_total", "class=api,engine=memory,result=limited")

		permit, err := semaphore.New(p.locks, "gpu", 2).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		f, err := fence.From(permit.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Refuse(permit.Context(), "row", 0)
		p.want(t, 1, "fencelock_fence_refusals_total", "class=gpu,engine=memory,kind=semaphore,mode=shared")
		_ = permit.Release()
	})
}

// At most 20 classes of a kind are series, also those of Config.Class.
func TestClasses(t *testing.T) {
	p := newProgram(t, &promfencelock.Config{Class: func(name string) string { return "of " + name }})
	for i := range 30 {
		_ = p.acquire(t, fmt.Sprint("lock", i)).Release()
	}
	if n := len(p.values(t, "fencelock_hold_count")); n != 21 {
		t.Errorf("%d series, want 20 classes and one for the rest", n)
	}
	p.want(t, 10, "fencelock_hold_duration_seconds", "class=_OTHER,engine=memory,hold_end=released,kind=lock,mode=exclusive")
	p.want(t, 1, "fencelock_hold_duration_seconds", "class=of lock0,engine=memory,hold_end=released,kind=lock,mode=exclusive")
}

// The linter of Prometheus objects only to the suffix of the two counts, which are gauges.
func TestNames(t *testing.T) {
	p := newProgram(t, nil)
	_ = p.acquire(t, "invoice:1").Release()
	problems, err := testutil.GatherAndLint(p.metrics)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if problem.Metric != "fencelock_hold_count" && problem.Metric != "fencelock_wait_count" {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}
