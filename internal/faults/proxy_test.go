package faults_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// A client talks to a real server through a proxy, in lines.
type client struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func start(t *testing.T) (*redistest.Redis, *faults.Proxy) {
	t.Helper()
	r := redistest.StartRedis(t)
	p, err := faults.NewProxy(r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return r, p
}

func dial(t *testing.T, p *faults.Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t: t, Conn: c, in: bufio.NewReader(c)}
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\r\n"); err != nil {
		c.t.Fatalf("send %q: %v", line, err)
	}
}

// line reads one line, waiting for 20 s at most.
func (c *client) line() (string, error) {
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	line, err := c.in.ReadString('\n')
	return strings.TrimSpace(line), err
}

// ask sends a line and wants a reply.
func (c *client) ask(line, want string) {
	c.t.Helper()
	c.send(line)
	c.hears(want)
}

func (c *client) hears(want string) {
	c.t.Helper()
	if got, err := c.line(); err != nil || got != want {
		c.t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

// lose waits until so many connections have lost something.
func lose(t *testing.T, p *faults.Proxy, n int) {
	t.Helper()
	for range 2000 {
		if p.Lost() == n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d connections have lost something, want %d", p.Lost(), n)
}

func (c *client) hearsNothing() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if got, err := c.in.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("got %q, %v; want silence", got, err)
	}
}

func (c *client) isReset() {
	c.t.Helper()
	if got, err := c.line(); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("got %q, %v; want a reset", got, err)
	}
}

func heal(t *testing.T, p *faults.Proxy) {
	t.Helper()
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the server's answer is want.
func eventually(t *testing.T, r *redistest.Redis, want string, args ...string) {
	t.Helper()
	var got string
	for range 2000 {
		if got = r.Do(t, args...); got == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%v: %q, want %q", args, got, want)
}

func TestDropIsSilentAndLosesForEver(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	busy, idle := dial(t, p), dial(t, p)
	busy.ask("PING", "+PONG")
	idle.ask("PING", "+PONG")
	p.Drop(faults.Both)
	busy.send("SET a 1")
	busy.hearsNothing()
	late := dial(t, p)
	late.send("SET b 1")
	late.hearsNothing()
	lose(t, p, 2)
	heal(t, p)
	busy.isReset()
	late.isReset()
	idle.ask("PING", "+PONG")
	dial(t, p).ask("PING", "+PONG")
	if got := r.Do(t, "DBSIZE"); got != "0" {
		t.Errorf("%s keys were written in a partition", got)
	}
}

func TestDropOfOneDirection(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c := dial(t, p)
	c.ask("PING", "+PONG")
	p.Drop(faults.ToClient)
	c.send("SET a 1")
	eventually(t, r, "1", "GET", "a")
	c.hearsNothing()
	lose(t, p, 1)
	p.Drop(0)
	c.isReset()
}

func TestDropOfRequestsLetsMessagesPass(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c := dial(t, p)
	c.ask("SUBSCRIBE news", "*3")
	for _, want := range []string{"$9", "subscribe", "$4", "news", ":1"} {
		c.hears(want)
	}
	p.Drop(faults.ToServer)
	c.send("PING")
	r.Do(t, "PUBLISH", "news", "x")
	for _, want := range []string{"*3", "$7", "message", "$4", "news", "$1", "x"} {
		c.hears(want)
	}
	lose(t, p, 1)
	p.Drop(0)
	c.isReset()
}

func TestDropHidesTheEnd(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	gone, left := dial(t, p), dial(t, p)
	gone.ask("CLIENT SETNAME guest", "+OK")
	left.ask("PING", "+PONG")
	p.Drop(faults.Both)
	gone.Close()
	lose(t, p, 1)
	if !strings.Contains(r.Do(t, "CLIENT", "LIST"), "name=guest") {
		t.Error("the server heard of a client's end in a partition")
	}
	r.Kill(t)
	lose(t, p, 2)
	left.hearsNothing()
	r.Restart(t)
	heal(t, p)
	left.isReset()
	dial(t, p).ask("PING", "+PONG")
}

func TestDelayKeepsOrder(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	c.ask("PING", "+PONG")
	const by = 150 * time.Millisecond
	p.Delay(faults.ToServer, by)
	p.Delay(faults.ToClient, by)
	began := time.Now()
	for _, word := range []string{"one", "two", "three", "four"} {
		c.send("ECHO " + word)
		time.Sleep(5 * time.Millisecond)
	}
	for _, want := range []string{"$3", "one", "$3", "two", "$5", "three", "$4", "four"} {
		c.hears(want)
	}
	if took := time.Since(began); took < 2*by {
		t.Errorf("four commands there and back took %v, want %v at least", took, 2*by)
	}
	p.Delay(faults.Both, 0)
	c.ask("PING", "+PONG")
}

func TestDelayedBytesAreLostInAPartition(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c := dial(t, p)
	c.ask("PING", "+PONG")
	p.Delay(faults.ToServer, 4*time.Second) // it must not be over before the next line
	c.send("SET a 1")
	p.Drop(faults.ToServer)
	lose(t, p, 1)
	heal(t, p)
	c.isReset()
	if got := r.Do(t, "DBSIZE"); got != "0" {
		t.Errorf("%s keys were written in a partition", got)
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	c.ask("PING", "+PONG")
	p.Refuse()
	refused := false
	for range 10 { // a dial may get the free port as its own and connect to itself
		conn, err := net.Dial("tcp", p.Addr())
		if refused = errors.Is(err, syscall.ECONNREFUSED); refused {
			break
		}
		if err != nil {
			t.Errorf("a new connection: %v", err)
			break
		}
		conn.Close()
	}
	if !refused {
		t.Error("new connections are not refused")
	}
	c.ask("PING", "+PONG")
	heal(t, p)
	heal(t, p)
	dial(t, p).ask("PING", "+PONG")
	c.ask("PING", "+PONG")
}

func TestDeadServer(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c := dial(t, p)
	c.ask("PING", "+PONG")
	r.Kill(t)
	if got, err := c.line(); err == nil {
		t.Errorf("from a dead server: %q", got)
	}
	if c, err := net.Dial("tcp", p.Addr()); err == nil { // the reset may come that early
		(&client{t: t, Conn: c, in: bufio.NewReader(c)}).isReset()
		c.Close()
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	r.Restart(t)
	dial(t, p).ask("PING", "+PONG")
}

func TestCloseEndsAll(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	c.ask("PING", "+PONG")
	p.Drop(faults.Both)
	stuck := dial(t, p)
	stuck.send("PING")
	stuck.hearsNothing()
	p.Close()
	c.isReset()
	stuck.isReset()
	heal(t, p)
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Close: %v", err)
	}
}
