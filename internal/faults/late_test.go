package faults_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// soon fails if a channel is not closed in time.
func soon(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(2 * time.Minute):
		t.Fatal(what)
	}
}

// listed waits until the server has, or has not, a client of this name.
func listed(t *testing.T, r *redistest.Redis, name string, want bool) {
	t.Helper()
	for range 2000 {
		if strings.Contains(r.Do(t, "CLIENT", "LIST"), "name="+name) == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the server lists client %s: %v, want %v", name, !want, want)
}

func TestLateRequestOutlivesItsClient(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	for name, end := range map[string]func(*client){
		"closed": func(c *client) { c.Close() },
		"reset": func(c *client) {
			c.Conn.(*net.TCPConn).SetLinger(0)
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, p)
			c.ask("CLIENT SETNAME "+name, "+OK")
			const by = time.Second
			remove := p.Late("INCR "+name, by)
			defer remove()
			sent := time.Now()
			c.send("INCR " + name)
			end(c)
			if there := strings.Contains(r.Do(t, "CLIENT", "LIST"), "name="+name); !there && time.Since(sent) < by {
				t.Error("the server has heard of the client's end before its request")
			}
			eventually(t, r, "1", "GET", name)
			if took := time.Since(sent); took < by {
				t.Errorf("delivered after %v, want %v", took, by)
			}
			listed(t, r, name, false)
		})
	}
}

func TestLateKeepsOrder(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	p.Late("two", 300*time.Millisecond)
	began := time.Now()
	c.send("ECHO one\r\nECHO two\r\nECHO three")
	for _, want := range []string{"$3", "one", "$3", "two", "$5", "three"} {
		c.hears(want)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}

// TestHoldNextCutsBetweenRequests: what is before the request passes, and the
// request reaches the server when its client has long been reset.
func TestHoldNextCutsBetweenRequests(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c, other := dial(t, p), dial(t, p)
	c.ask("CLIENT SETNAME ghost", "+OK")
	held := p.HoldNext("INCR b")
	c.send("INCR a\r\nINCR b\r\nINCR c")
	c.hears(":1")
	soon(t, held.Caught(), "nothing was held")
	other.ask("INCR b", ":1") // the next one only
	held.ResetClients()
	c.isReset()
	if got := r.Do(t, "MGET", "a", "b", "c"); got != "1\n1\n" {
		t.Errorf("executed before the delivery: %q", got)
	}
	listed(t, r, "ghost", true)
	held.Deliver()
	soon(t, held.Answered(), "the server has not answered")
	eventually(t, r, "1\n2\n1", "MGET", "a", "b", "c")
	listed(t, r, "ghost", true)
	held.End()
	listed(t, r, "ghost", false)
}

func TestHoldKeepsAll(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	held := p.Hold("INCR")
	var clients []*client
	for range 3 {
		c := dial(t, p)
		c.send("PING\r\nINCR a")
		c.hears("+PONG")
		clients = append(clients, c)
	}
	clients[0].Close()
	clients[1].hearsNothing()
	if got := r.Do(t, "EXISTS", "a"); got != "0" {
		t.Error("a request was not held")
	}
	held.Deliver()
	eventually(t, r, "3", "GET", "a")
	clients[2].line()
	clients[2].ask("DEL a", ":1") // the others are in nobody's way
	held.End()
	held.End()
}

// TestHealLosesWhatIsHeldInAPartition: a request that is delivered during a
// partition is lost like any other.
func TestHealLosesWhatIsHeldInAPartition(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c := dial(t, p)
	held := p.HoldNext("INCR a")
	c.send("INCR a")
	soon(t, held.Caught(), "nothing was held")
	p.Drop(faults.Both)
	held.Deliver()
	lose(t, p, 1)
	heal(t, p)
	c.isReset()
	if got := r.Do(t, "EXISTS", "a"); got != "0" {
		t.Error("the request reached the server")
	}
}

// postgres starts a server behind a proxy, and returns a URL that leads there.
func postgres(t *testing.T) (*pgtest.Postgres, *faults.Proxy, string) {
	t.Helper()
	pg := pgtest.StartPostgres(t)
	at := fmt.Sprintf("127.0.0.1:%d", pg.Port())
	p, err := faults.NewProxy(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return pg, p, strings.Replace(pg.DSN(), at, p.Addr(), 1)
}

// TestHoldOfAStatement: the parsed, bound and executed statement of an extended
// query is one request, and it takes a lock for a client that has gone.
func TestHoldOfAStatement(t *testing.T) {
	t.Parallel()
	pg, p, dsn := postgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	held := p.HoldNext("pg_advisory_lock")
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", 42)
		failed <- err
	}()
	soon(t, held.Caught(), "nothing was held")
	cancel()
	if err := <-failed; err == nil || !conn.IsClosed() {
		t.Fatalf("the client has not given up: %v", err)
	}
	const locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
	if got := pg.Query(t, locks); got != "0" {
		t.Errorf("%s locks before the delivery", got)
	}
	held.Deliver() // pgx prepares the statement first
	held.End()
	deadline := time.Now().Add(20 * time.Second)
	for pg.Query(t, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%advisory_lock($1)%' AND pid <> pg_backend_pid()") != "0" {
		if time.Now().After(deadline) {
			t.Fatal("the server has not heard of the client's end")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestGhostOfAStatement: a lock that a late statement takes stays as long as the
// proxy keeps the connection for it.
func TestGhostOfAStatement(t *testing.T) {
	t.Parallel()
	pg, p, dsn := postgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	held := p.HoldNext("pg_advisory_lock(42)")
	brief, cancel := context.WithCancel(t.Context())
	go func() { // ends with the request
		<-held.Caught()
		cancel()
	}()
	if _, err := conn.Exec(brief, "SELECT pg_advisory_lock(42)", pgx.QueryExecModeSimpleProtocol); err == nil {
		t.Fatal("the client has not given up")
	}
	soon(t, held.Caught(), "nothing was held")
	watch := pg.Connect(t)
	count := func(want int) {
		t.Helper()
		got := -1
		for range 2000 {
			const locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
			if err := watch.QueryRow(t.Context(), locks).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%d locks, want %d", got, want)
	}
	count(0)
	held.Deliver()
	soon(t, held.Answered(), "the server has not answered")
	count(1)
	held.End()
	count(0)
}
