package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// A payment that a client sends twice is made once.
func ExampleDo() {
	ctx := context.Background()
	engine := memlock.New(nil)
	payments := idempotent.New(fencelock.New(engine, nil), engine.Records(), nil)

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

// A program that cannot make a function of its work begins a run and ends it.
func ExampleStore_Begin() {
	ctx := context.Background()
	engine := memlock.New(nil)
	imports := idempotent.New(fencelock.New(engine, nil), engine.Records(), nil)

	for range 2 {
		run, err := imports.Begin(ctx, "import:2026-11-25")
		if done, ok := errors.AsType[*idempotent.DoneError](err); ok {
			fmt.Printf("done before: %s\n", done.Result)
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("imports") // as long as run.Context() stands
		fmt.Println("stored:", run.Complete([]byte("981 rows")))
	}
	// Output:
	// imports
	// stored: <nil>
	// done before: 981 rows
}

// A client that got no answer sends its order again, and gets the answer of the first
// one.
func ExampleStore_Handler() {
	orders := 0
	order := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d", orders)
	})
	engine := memlock.New(nil)
	handler := idempotent.New(fencelock.New(engine, nil), engine.Records(), nil).Handler(order, nil)

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("tea"))
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
		r.Header.Set("Authorization", "Bearer of-alice")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 201 order 1
	// 201 order 1
}
