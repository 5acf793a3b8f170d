package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/ratelimit"
)

// Three mails an hour to each user, by all processes together.
func ExampleLimiter_Allow() {
	ctx := context.Background()
	mails := ratelimit.New(memlock.New(nil), "mails", ratelimit.PerHour(3), nil)

	for range 4 {
		result, err := mails.Allow(ctx, "user:42")
		fmt.Println(result.OK, result.Remaining, err)
	}
	other, _ := mails.Allow(ctx, "user:43")
	fmt.Println("another user:", other.OK)
	// Output:
	// true 2 <nil>
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
	// another user: true
}

// Work that is slowed down, and does not wait longer than it may.
func ExampleLimiter_Wait() {
	partner := ratelimit.New(memlock.New(nil), "partner", ratelimit.Limit{Events: 1, Per: time.Hour}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	fmt.Println(partner.Wait(ctx, ""))
	err := partner.Wait(ctx, "") // its turn is in an hour, so it says so at once
	fmt.Println(errors.Is(err, ratelimit.ErrLimited))
	// Output:
	// <nil>
	// true
}

// What happens while the engine is down is a choice, and the result shows it.
func ExampleConfig() {
	engine := memlock.New(nil)
	api := ratelimit.New(engine, "api", ratelimit.PerSecond(100), &ratelimit.Config{
		Down:  ratelimit.FailLocal,
		Local: ratelimit.PerMinute(2), // for each process
	})

	engine.Refuse(errors.New("connection refused"))
	for range 3 {
		result, err := api.Allow(context.Background(), "user:42")
		fmt.Println(result.OK, result.Err != nil, err)
	}
	// Output:
	// true true <nil>
	// true true <nil>
	// false true <nil>
}

// An API with a limit for each account.
func ExampleHandler() {
	limiter := ratelimit.New(memlock.New(nil), "account", ratelimit.PerMinute(2), nil)
	account := func(r *http.Request) string { return r.Header.Get("Account") }
	api := ratelimit.Handler(limiter, account, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "done")
	}))

	for range 3 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Account", "42")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		left, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // and in how many seconds there is more
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), left)
	}
	// Output:
	// 200 "account";q=2;w=60 "account";r=1
	// 200 "account";q=2;w=60 "account";r=0
	// 429 "account";q=2;w=60 "account";r=0
}
