package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
)

const maxBody = 16 << 10

// order asks to end one acquisition. Without an owner it would also end that of a successor.
type order struct {
	Name   string `json:"name"`
	Owner  string `json:"owner"`
	Reason string `json:"reason"`
}

// take takes a lock away from one owner, and answers with the new token.
func (h *Handler) take(w http.ResponseWriter, r *http.Request) {
	switch err := h.origin.Check(r); {
	case err != nil:
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	case h.cfg.MayBreak == nil:
		http.Error(w, "this page breaks no locks", http.StatusForbidden)
		return
	case r.Header.Get("Content-Type") != "application/json": // which a form of another site cannot send
		http.Error(w, "the request must be JSON", http.StatusUnsupportedMediaType)
		return
	}
	if err := h.cfg.MayBreak(r); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(slowest)) // as in ServeHTTP
	var o order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.Reason = strings.TrimSpace(o.Reason)
	switch {
	case o.Owner == "" || o.Reason == "":
		http.Error(w, "the owner or the reason is missing", http.StatusBadRequest)
		return
	case !strings.HasPrefix(o.Name, h.cfg.Prefix):
		http.Error(w, "the page does not show this name", http.StatusForbidden)
		return
	}
	token, err := h.hub.locks.BreakOwner(r.Context(), o.Name, o.Owner, o.Reason)
	h.cfg.Logger.WarnContext(r.Context(), "a lock was taken away on the dashboard",
		"name", o.Name, "owner", o.Owner, "reason", o.Reason, "remote", r.RemoteAddr, "token", token, "error", err)
	switch {
	case errors.Is(err, fencelock.ErrNotHeld):
		http.Error(w, err.Error(), http.StatusConflict)
		return
	case token == 0:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	answer := map[string]string{"token": fmt.Sprint(token)} // beyond the integers of JavaScript
	if err != nil {
		answer["warning"] = err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the reader is gone
}
