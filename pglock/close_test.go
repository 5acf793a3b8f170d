//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

// TestCloseWhileTheServerIsDown: what an engine still has to do on the server ends with the engine,
// though it could not be done. Nothing connects to the server any more, and requests fail at once.
func TestCloseWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	try(t, e, request("a"))
	ctx, cancel := context.WithCancel(t.Context())
	first := queueUp(t, ctx, e, request("a"))
	second := queueUp(t, ctx, e, request("a")) // which waits in this process, and has a row
	pg.Stop(t)
	cancel()
	for _, done := range []<-chan wait{first, second} {
		if w := await(t, done, "the end of a wait"); !errors.Is(w.err, context.Canceled) {
			t.Errorf("a wait whose context has ended: %v", w.err)
		}
	}
	must(t, e.Close())
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(pg.Port())))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	connected := make(chan struct{}, 1)
	go func() { // ends with ln
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			select {
			case connected <- struct{}{}:
			default:
			}
		}
	}()
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req := request("b")
	req.Wait = true
	if _, err := e.Acquire(limited, req); limited.Err() != nil {
		t.Errorf("a wait on a closed engine does not end: %v", err)
	} else {
		unavailable(t, "a wait on a closed engine", err)
	}
	select {
	case <-connected:
		t.Error("a closed engine connects to the server")
	case <-time.After(3 * time.Second): // the row was to be deleted within a second, and then with longer pauses
	}
}
