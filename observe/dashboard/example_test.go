package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/dashboard"
)

// The page of a service, with a button for operators. The engine is that of the service's locks.
func Example() {
	locks := fencelock.New(memlock.New(nil), nil)
	page := dashboard.New(locks, &dashboard.Config{
		Hosts: []string{"ops.example.com"},
		MayBreak: func(r *http.Request) error {
			if user, _, _ := r.BasicAuth(); user != "operator" {
				return errors.New("only operators may take locks away")
			}
			return nil
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/locks/", page)
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(page.Close) // ends the streams of open pages

	err := locks.Do(context.Background(), "invoice:42", func(context.Context) error {
		answer := httptest.NewRecorder()
		server.Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://ops.example.com/locks/", nil))
		fmt.Println(answer.Code, strings.Contains(answer.Body.String(), "invoice:42"))
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 200 true
}
