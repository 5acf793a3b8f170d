package promfencelock_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/promfencelock"
	"github.com/fencelock/fencelock/ratelimit"
)

func Example() {
	engine, limit := memlock.New(nil), ratelimit.Limit{Events: 10}

	metrics := promfencelock.New(nil)
	prometheus.MustRegister(metrics)
	locks := fencelock.New(engine, &fencelock.Config{Tracer: metrics.Tracer()})
	http.Handle("/metrics", promhttp.Handler())

	cfg := &ratelimit.Config{OnDecision: metrics.Tracer().RateEnd}
	limiter := ratelimit.New(engine, "api", limit, cfg)

	ctx := context.Background()
	_ = locks.Do(ctx, "invoice:42", func(context.Context) error { return nil })
	_, _ = limiter.Allow(ctx, "client")

	w := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	page, _ := io.ReadAll(w.Body)
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "fencelock_hold_duration_seconds_count") && strings.Contains(line, "released") || strings.HasPrefix(line, "fencelock_ratelimit") {
			fmt.Print(line)
		}
	}
	// Output:
	// fencelock_hold_duration_seconds_count{class="invoice",engine="memory",hold_end="released",kind="lock",mode="exclusive"} 1
	// fencelock_ratelimit_decisions_total{class="api",engine="memory",error_type="",result="granted"} 1
}
