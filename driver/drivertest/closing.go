package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// closeCases are about engines that can be closed.
var closeCases = []Case{
	newCase("closed-engine", anyEngine, closedEngine),
}

// closedEngine: Close ends the requests of a client, and later ones, with ErrUnavailable. A request that meets
// it is either granted or leaves nothing behind.
//
// It fails an engine that grants requests after Close, or whose requests stay in the queue, or hold the name,
// after they have returned an error.
func closedEngine(t *run) {
	other := t.client()
	for round := range 3 {
		c := t.client()
		closer, ok := as[io.Closer](c)
		if !ok {
			t.Skip("the engine cannot be closed")
		}
		h := t.hold(other, t.request(fmt.Sprint("held", round)))
		calls := []*call{t.queue(c, t.request(h.req.Name))}
		for i := range 8 {
			calls = append(calls, t.wait(c, t.request(fmt.Sprint("free", round, i))))
		}
		if err := within(t, "Close", func(context.Context) error { return closer.Close() }); err != nil {
			t.Errorf("Close: %v", err)
		}
		for _, w := range calls {
			select {
			case <-w.done:
			case <-time.After(t.patience):
				t.Fatalf("a request for %q did not return within %v of Close", w.name, t.patience)
			}
		}
		if _, err := t.attempt(c, t.request("later")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a request after Close: got %v, want ErrUnavailable", err)
		}
		h.free()
		for _, w := range calls {
			if w.err == nil {
				continue // it was granted before
			}
			if !errors.Is(w.err, driver.ErrUnavailable) {
				t.Errorf("a request for %q that met Close: got %v, want ErrUnavailable", w.name, w.err)
			}
			t.take(t.patience/2, other, t.request(w.name)).free()
		}
	}
}
