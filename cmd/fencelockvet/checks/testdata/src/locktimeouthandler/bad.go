// Package locktimeouthandler has handlers with a limit behind a store of keys, and such in front.
package locktimeouthandler

import (
	"net/http"
	"time"

	"github.com/fencelock/fencelock/idempotent"
)

func logged(next http.Handler) http.Handler { return next }

func named(_ string, next http.Handler) http.Handler { return next }

func bad01(s *idempotent.Store, slow http.Handler) http.Handler {
	return s.Handler(http.TimeoutHandler(slow, time.Second, ""), nil) // want `put it in front`
}

func bad02(s *idempotent.Store, slow http.Handler) http.Handler {
	limited := http.TimeoutHandler(slow, time.Second, "")
	return s.Handler(limited, nil) // want `put it in front`
}

func bad03(s *idempotent.Store, slow http.Handler) http.Handler {
	return s.Handler(logged(http.TimeoutHandler(slow, time.Second, "")), nil) // want `put it in front`
}

func bad04(s *idempotent.Store, slow http.Handler) {
	http.Handle("/", s.Handler(named("slow", http.TimeoutHandler(slow, time.Second, "")), &idempotent.HTTP{Detach: true})) // want `put it in front`
}

func bad05(s *idempotent.Store, slow http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/slow", http.TimeoutHandler(slow, time.Second, ""))
	return s.Handler(mux, nil) // want `put it in front`
}

func bad06(s *idempotent.Store, slow http.HandlerFunc) http.Handler {
	var limited = http.TimeoutHandler(slow, time.Second, "")
	wrapped := logged(limited)
	return s.Handler(wrapped, nil) // want `put it in front`
}

func bad07(s *idempotent.Store, slow http.Handler) http.Handler {
	inner, outer := http.NewServeMux(), http.NewServeMux()
	inner.Handle("/slow", http.TimeoutHandler(slow, time.Second, ""))
	outer.Handle("/api/", http.StripPrefix("/api", inner))
	return s.Handler(outer, nil) // want `put it in front`
}

func bad08(s *idempotent.Store, slow http.Handler) http.Handler {
	return logged(s.Handler((http.TimeoutHandler(slow, time.Second, "")), nil)) // want `put it in front`
}

func bad09(s *idempotent.Store, slow http.Handler) http.Handler { // in front as well, which does not help
	return http.TimeoutHandler(s.Handler(http.TimeoutHandler(slow, time.Second, ""), nil), time.Minute, "") // want `put it in front`
}

func bad10(stores []*idempotent.Store, slow http.Handler) {
	for _, s := range stores {
		func() {
			http.Handle("/", s.Handler(http.MaxBytesHandler(http.TimeoutHandler(slow, time.Second, ""), 1000), nil)) // want `put it in front`
		}()
	}
}
