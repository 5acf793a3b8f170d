package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
)

// admin serves metrics and probes, on a port of its own that clients do not reach. It serves them
// until the process ends.
type admin struct {
	http.Handler
	locks    *fencelock.Locker
	draining atomic.Bool
}

func newAdmin(locks *fencelock.Locker, candidate *election.Candidate, registry *prometheus.Registry) *admin {
	mux := http.NewServeMux()
	a := &admin{Handler: mux, locks: locks}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	// It does not ask Redis: an outage of Redis must not restart every instance. It fails if this
	// instance still works as the leader a minute after it has lost its term.
	mux.Handle("GET /livez", candidate.Health(time.Minute))
	mux.HandleFunc("GET /readyz", a.ready)
	return a
}

// drain makes the probe of readiness fail.
func (a *admin) drain() { a.draining.Store(true) }

// ready answers 503 while this instance stops, and while it cannot acquire locks.
func (a *admin) ready(w http.ResponseWriter, r *http.Request) {
	if a.draining.Load() {
		http.Error(w, "this instance stops", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := a.locks.Check(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
