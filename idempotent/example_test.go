package idempotent_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// A payment that a client sends twice is made once.
func ExampleDo() {
	ctx := context.Background()
	payments := idempotent.New(memlock.New(nil).Records(), nil)

	type receipt struct{ Number, Cents int }
	made := 0
	for range 2 {
		got, err := idempotent.Do(ctx, payments, "payment:42", func(context.Context) (receipt, error) {
			made++
			return receipt{Number: 1, Cents: 995}, nil
		})
		fmt.Println(got, err)
	}
	fmt.Println("made:", made)
	// Output:
	// {1 995} <nil>
	// {1 995} <nil>
	// made: 1
}

// A client that heard no answer sends its order again, and gets the answer of the first
// one.
func ExampleStore_Handler() {
	orders := 0
	order := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d", orders)
	})
	handler := idempotent.New(memlock.New(nil).Records(), nil).Handler(order, nil)

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("tea"))
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 201 order 1
	// 201 order 1
}
