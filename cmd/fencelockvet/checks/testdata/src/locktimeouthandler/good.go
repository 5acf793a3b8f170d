package locktimeouthandler

import (
	"context"
	"net/http"
	"time"

	"github.com/fencelock/fencelock/idempotent"
)

func good01(s *idempotent.Store, slow http.Handler) http.Handler {
	return http.TimeoutHandler(s.Handler(slow, nil), time.Second, "")
}

func good02(s *idempotent.Store, slow http.Handler) http.Handler {
	return http.TimeoutHandler(logged(s.Handler(slow, nil)), time.Second, "")
}

func good03(s *idempotent.Store, slow http.Handler) http.Handler { return s.Handler(slow, nil) }

// The limit is for requests that do not come through the store.
func good04(s *idempotent.Store, slow http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", http.TimeoutHandler(slow, time.Second, ""))
	mux.Handle("POST /", s.Handler(slow, nil))
	return mux
}

func good05(s *idempotent.Store, slow http.Handler) http.Handler {
	limited := http.TimeoutHandler(s.Handler(slow, nil), time.Second, "")
	return logged(limited)
}

// A handler that ends with its context is finished when it returns.
func good06(s *idempotent.Store, slow http.Handler) http.Handler {
	return s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		slow.ServeHTTP(w, r.WithContext(ctx))
	}), nil)
}

// Which handler it is depends on the caller.
func good07(s *idempotent.Store, slow http.Handler, limit bool) http.Handler {
	next := slow
	if limit {
		next = http.TimeoutHandler(slow, time.Second, "")
	}
	return s.Handler(next, nil)
}

func good08(s *idempotent.Store, slow http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", slow)
	return s.Handler(mux, nil)
}

func good09(s *idempotent.Store, slow http.Handler) http.Handler {
	return s.Handler(http.AllowQuerySemicolons(slow), nil)
}

// The store in the middle has its handler behind it.
func good10(outer *idempotent.Store, slow http.Handler) http.Handler {
	return http.TimeoutHandler(outer.Handler(logged(slow), &idempotent.HTTP{Detach: true}), time.Second, "")
}

func good11(slow http.Handler) http.Handler { return http.TimeoutHandler(slow, time.Second, "") }

func good12(s *idempotent.Store) http.Handler {
	server := &http.Server{ReadTimeout: time.Second, Handler: s.Handler(http.NotFoundHandler(), nil)}
	return server.Handler
}
