//go:build unix

package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/internal/promtext"
)

// health answers probes of load balancers, orchestrators and Prometheus while elect runs.
type health struct {
	name      string
	candidate *election.Candidate
	server    http.Server
	terms     atomic.Int64
	lost      atomic.Int64 // of terms
	resting   atomic.Bool  // between two terms, before the next campaign
}

// serve starts to answer on an address, until the returned function is called. Without an address
// it does nothing.
func (h *health) serve(a *App, address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, Exit(exitStart, fmt.Errorf("--health: %w", err))
	}
	a.detail("answering probes on %s", listener.Addr())
	h.server = http.Server{Handler: h, ReadTimeout: probeLimit, WriteTimeout: probeLimit, IdleTimeout: time.Minute}
	go func() { _ = h.server.Serve(listener) }() // ends with stop
	return func() { _ = h.server.Close() }, nil
}

// ServeHTTP answers a probe. A ServeMux would make the command larger by 60 kB.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := map[string]http.HandlerFunc{"/leader": h.leader, "/ready": h.ready, "/metrics": h.metrics}[path.Clean(r.URL.Path)]
	switch {
	case answer == nil:
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
	default:
		answer(w, r)
	}
}

// How long a client may take to send a request or to read the answer, and how long the server of
// the locks may take to answer during a probe.
const (
	probeLimit  = 5 * time.Second
	serverLimit = 3 * time.Second
)

// checkAddress refuses an address without a port. An empty variable must not remove the probes.
func checkAddress(address string) error {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("%q is not an address with a port; write 127.0.0.1:8081 or :8081", address)
	}
	return nil
}

// leader answers 200 while this process leads.
func (h *health) leader(w http.ResponseWriter, _ *http.Request) {
	term := h.candidate.Term()
	if term == nil {
		http.Error(w, "not the leader", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "leader, token %d\n", term.Token())
}

// ready answers 200 while this process leads or can become the leader.
func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), serverLimit)
	defer cancel()
	if h.resting.Load() {
		http.Error(w, "pausing before the next campaign", http.StatusServiceUnavailable)
		return
	}
	if err := h.candidate.Ready(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, h.candidate.State())
}

// metrics answers in the text format of Prometheus.
func (h *health) metrics(w http.ResponseWriter, _ *http.Request) {
	leading := 0
	if h.candidate.Term() != nil {
		leading = 1
	}
	promtext.Write(w, "name", h.name, []promtext.Metric{
		{Name: "fencelock_election_leading", Type: "gauge", Help: "1 while this process leads.", Value: leading},
		{Name: "fencelock_election_terms_total", Type: "counter", Help: "Terms of this process.", Value: h.terms.Load()},
		{Name: "fencelock_election_terms_lost_total", Type: "counter", Help: "Terms that ended because the lock was lost.", Value: h.lost.Load()},
	})
}
