package dashboard

import (
	"net/http"

	"github.com/fencelock/fencelock/internal/promtext"
)

// metrics answers in the text format of Prometheus. The values are those of a list, so they cover
// all holders and waiters of the engine, whatever program or language they use.
func (h *Handler) metrics(w http.ResponseWriter, _ *http.Request) {
	h.hub.look()
	s, up := h.hub.view(query{}, &sent{}).sums, 1
	if s.Error != "" {
		up = 0
	}
	gauge := func(name, help string, value any) promtext.Metric {
		return promtext.Metric{Name: "fencelock_ui_" + name, Type: "gauge", Help: help, Value: value}
	}
	promtext.Write(w, "engine", h.hub.locks.EngineName(), []promtext.Metric{
		gauge("up", "1 if the last list of the engine had no error.", up),
		gauge("locks_held", "Acquisitions that hold a lock.", s.Held),
		gauge("requests_waiting", "Requests that wait for a lock.", s.Waiting),
		gauge("names", "Names that are held, waited for or closed by a minimum hold.", s.Names),
		gauge("longest_wait_seconds", "How long the oldest request has waited.", float64(s.LongestWait)/1000),
		gauge("oldest_hold_seconds", "How long the oldest lock has been held.", float64(s.Oldest)/1000),
		gauge("list_seconds", "How long the last list took.", s.Took/1000),
	})
}
