package faults_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/internal/faults"
)

func TestStallDelivers(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	gone, stays := dial(t, p), dial(t, p)
	gone.ask("PING", "+PONG")
	stays.ask("PING", "+PONG")
	p.Stall(faults.Both)
	gone.send("INCR a")
	stays.send("INCR a")
	late := dial(t, p)
	late.send("INCR a")
	gone.Close()
	stays.hearsNothing()
	if got := r.Do(t, "EXISTS", "a"); got != "0" {
		t.Error("a stalled request reached the server")
	}
	heal(t, p)
	eventually(t, r, "3", "GET", "a")
	stays.line()
	stays.ask("PING", "+PONG")
	late.line()
	late.ask("PING", "+PONG")
}

// TestStallOfReplies: the server has done it, and its reply does not arrive for now.
func TestStallOfReplies(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c := dial(t, p)
	c.ask("PING", "+PONG")
	p.Stall(faults.ToClient)
	c.send("INCR a")
	eventually(t, r, "1", "GET", "a")
	c.hearsNothing()
	p.Resume()
	c.hears(":1")
}

func TestStallOfOneConnection(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	still := dial(t, p)
	still.ask("CLIENT SETNAME still", "+OK") // the proxy may learn of a second one sooner
	lively := dial(t, p)
	lively.ask("PING", "+PONG")
	p.Links()[0].Stall(faults.ToServer)
	block := []byte(strings.Repeat("INCR still\r\n", 4<<10))
	still.SetWriteDeadline(time.Now().Add(time.Second))
	sent, err := 0, error(nil)
	for n := 0; err == nil && sent < 100<<20; sent += n {
		n, err = still.Write(block)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the pipe of a stalled connection took %d bytes: %v", sent, err)
	}
	lively.ask("INCR lively", ":1")
	if got := r.Do(t, "EXISTS", "still"); got != "0" {
		t.Error("a stalled request reached the server")
	}
	still.Conn.(*net.TCPConn).CloseWrite()
	for _, l := range p.Links() {
		l.Resume()
	}
	io.Copy(io.Discard, still)
	eventually(t, r, strconv.Itoa(sent/len("INCR still\r\n")), "GET", "still")
}

// TestStallOfABackend: a backend whose client does not read stands in a write.
func TestStallOfABackend(t *testing.T) {
	t.Parallel()
	pg, p, dsn := postgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	link := p.Links()[0]
	link.Stall(faults.ToClient)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
		done <- err
	}()
	for range 2000 {
		if pg.Query(t, "SELECT true FROM pg_stat_activity WHERE wait_event = 'ClientWrite'") == "true" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case err := <-done:
		t.Fatalf("a stalled connection delivers: %v", err)
	default:
	}
	link.Resume()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
