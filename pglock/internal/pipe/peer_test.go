package pipe_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// patience is for what must not take long.
const patience = time.Minute

// peer is the other end of a connection, which the test plays byte by byte: what it wants to
// happen in the middle of a message no server does when it is told to.
type peer struct {
	*pgproto3.Backend
	conn    net.Conn
	cancels chan struct{} // one for each request to cancel
	busy    sync.Mutex    // held by a test: cancels are received, and not answered
}

// dial connects to a peer.
func dial(t *testing.T, onNotification func(string)) (*pipe.Conn, *peer) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	p := &peer{cancels: make(chan struct{}, 100)}
	ready := make(chan error, 1)
	go func() { // ends when ln is closed
		ready <- p.welcome(ln)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go p.cancelled(c) // ends when busy is free
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := pgconn.Connect(ctx, "postgres://test@"+ln.Addr().String()+"/test?sslmode=disable")
	if err := errors.Join(err, <-ready); err != nil {
		t.Fatal(err)
	}
	w, err := pipe.New(c, onNotification)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Kill(errors.New("the test is over"))
		_ = p.conn.Close()
	})
	return w, p
}

// cancelled takes a request to cancel, which comes on a connection of its own.
func (p *peer) cancelled(c net.Conn) {
	if m, err := pgproto3.NewBackend(c, c).ReceiveStartupMessage(); err == nil {
		if _, ok := m.(*pgproto3.CancelRequest); ok {
			p.cancels <- struct{}{}
		}
	}
	p.busy.Lock()
	defer p.busy.Unlock()
	_ = c.Close()
}

// welcome lets a client in.
func (p *peer) welcome(ln net.Listener) (err error) {
	if p.conn, err = ln.Accept(); err != nil {
		return err
	}
	p.Backend = pgproto3.NewBackend(p.conn, p.conn)
	if _, err := p.ReceiveStartupMessage(); err != nil {
		return err
	}
	p.Send(&pgproto3.AuthenticationOk{})
	p.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 2}})
	p.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return p.Flush()
}

// call receives a function call, and returns its first argument.
func (p *peer) call(t *testing.T) string {
	t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	m, err := p.Receive()
	if err != nil {
		t.Fatal(err)
	}
	f, ok := m.(*pgproto3.FunctionCall)
	if !ok {
		t.Fatalf("received %T instead of a function call", m)
	}
	return string(f.Arguments[0])
}

// answer answers a function call.
func (p *peer) answer(t *testing.T, result string) {
	t.Helper()
	p.say(t, &pgproto3.FunctionCallResponse{Result: []byte(result)}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
}

// refuse answers with an error.
func (p *peer) refuse(t *testing.T, severity, code string) {
	t.Helper()
	p.say(t, &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: code, Message: "no"},
		&pgproto3.ReadyForQuery{TxStatus: 'I'})
}

func (p *peer) say(t *testing.T, messages ...pgproto3.BackendMessage) {
	t.Helper()
	for _, m := range messages {
		p.Send(m)
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
}

// write writes bytes as they are.
func (p *peer) write(t *testing.T, b []byte) {
	t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// await receives from c, or fails the test.
func await[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("nothing: %s", what)
	}
	return v
}

// soon bounds what must not take long.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// want checks the result of a call.
func want(t *testing.T, c *pipe.Call, result string) {
	t.Helper()
	if r, err := c.Result(soon(t)); err != nil || r.Text(0) != result {
		t.Errorf("got %q, %v; want %q", r.Text(0), err, result)
	}
}
