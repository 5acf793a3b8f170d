package fencegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencegrpc"
	"github.com/fencelock/fencelock/fence/internal/guardtest"
	"github.com/fencelock/fencelock/memlock"
)

// invoices is a service: Put writes a value, Pour each of a stream of values.
type invoices struct {
	mu    sync.Mutex // guards value
	value string
}

func (s *invoices) write(ctx context.Context, value string) error {
	if f, err := fence.From(ctx); err != nil || f.Name != "lock/ä" && f.Name != "invoice:42" {
		return status.Errorf(codes.Internal, "the handler has %+v, %v", f, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value
	return nil
}

func (s *invoices) read() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, nil
}

// put is the handler of Put.
func put(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	in := new(wrapperspb.StringValue)
	if err := decode(in); err != nil {
		return nil, err
	}
	info := &grpc.UnaryServerInfo{Server: server, FullMethod: putMethod}
	return intercept(ctx, in, info, func(ctx context.Context, request any) (any, error) {
		return new(emptypb.Empty), server.(*invoices).write(ctx, request.(*wrapperspb.StringValue).GetValue())
	})
}

// pour is the handler of Pour: it answers each value.
func pour(server any, stream grpc.ServerStream) error {
	for {
		in := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(in); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := server.(*invoices).write(stream.Context(), in.GetValue()); err != nil {
			return err
		}
		if err := stream.SendMsg(new(emptypb.Empty)); err != nil {
			return err
		}
	}
}

const (
	putMethod     = "/test.Invoices/Put"
	pourMethod    = "/test.Invoices/Pour"
	collectMethod = "/test.Invoices/Collect"
)

var (
	pourDesc    = grpc.StreamDesc{StreamName: "Pour", Handler: pour, ServerStreams: true, ClientStreams: true}
	collectDesc = grpc.StreamDesc{StreamName: "Collect", Handler: collect, ServerStreams: true, ClientStreams: true}
	service     = grpc.ServiceDesc{
		ServiceName: "test.Invoices", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Put", Handler: put}},
		Streams: []grpc.StreamDesc{pourDesc, collectDesc},
	}
)

// serve starts a server whose resources all have one name, and returns a client that
// sends fences and one that does not.
func serve(t testing.TB, store fence.Store, resource string) (s *invoices, fenced, plain *grpc.ClientConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	named := func(_ context.Context, _ string, request any) string {
		if _, ok := request.(*wrapperspb.StringValue); !ok {
			return "no request"
		}
		return resource
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(fencegrpc.UnaryServerInterceptor(store, named)),
		grpc.ChainStreamInterceptor(fencegrpc.StreamServerInterceptor(store, named)))
	s = new(invoices)
	server.RegisterService(&service, s)
	go func() { _ = server.Serve(ln) }() // ends with Stop
	t.Cleanup(server.Stop)
	dial := func(opts ...grpc.DialOption) *grpc.ClientConn {
		conn, err := grpc.NewClient(ln.Addr().String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	return s, dial(
		grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(fencegrpc.StreamClientInterceptor())), dial()
}

// write calls Put.
func write(ctx context.Context, conn *grpc.ClientConn, value string) error {
	return conn.Invoke(ctx, putMethod, wrapperspb.String(value), new(emptypb.Empty))
}

// flow writes by a stream of its own, to its end.
func flow(ctx context.Context, conn *grpc.ClientConn, value string) error {
	stream, err := conn.NewStream(ctx, &pourDesc, pourMethod)
	if err != nil {
		return err
	}
	if err := step(stream, value); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(new(emptypb.Empty)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("after its end: %w", err)
	}
	return nil
}

// step writes a value by a stream, and waits for the answer.
func step(stream grpc.ClientStream, value string) error {
	if err := stream.SendMsg(wrapperspb.String(value)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return stream.RecvMsg(new(emptypb.Empty))
}

// collect is the handler of Collect: it answers each value, and writes all of them when the
// client has sent the last one.
func collect(server any, stream grpc.ServerStream) error {
	all := ""
	for {
		in := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(in); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		all += in.GetValue()
		if err := stream.SendMsg(new(emptypb.Empty)); err != nil {
			return err
		}
	}
	return server.(*invoices).write(stream.Context(), all)
}

// named is a context as of a lock whose name has what metadata escapes.
func named(ctx context.Context) context.Context {
	f, err := fence.From(ctx)
	if err != nil {
		return ctx
	}
	f.Name = "lock/ä"
	return fence.NewContext(ctx, f)
}

// TestGuard takes a resource behind each kind of call through the life of a guarded one.
func TestGuard(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *grpc.ClientConn, string) error{"unary": write, "stream": flow} {
		t.Run(name, func(t *testing.T) {
			const resource = "näme \"quoted\" \xff"
			s, conn, _ := serve(t, new(fence.Memory), resource)
			if err := guardtest.Run(t.Context(), guardtest.Resource{
				Name:  resource,
				Write: func(ctx context.Context, value string) error { return call(named(ctx), conn, value) },
				Read:  s.read,
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// blind is a store that compares nothing.
type blind struct{}

func (blind) Check(context.Context, string, fence.Fence) error { return nil }

// TestWithoutComparison: a server that does not ask its store fails the conformance suite.
func TestWithoutComparison(t *testing.T) {
	t.Parallel()
	s, conn, _ := serve(t, blind{}, "r")
	for name, call := range map[string]func(context.Context, *grpc.ClientConn, string) error{"unary": write, "stream": flow} {
		if err := guardtest.Run(t.Context(), guardtest.Resource{
			Name:  "r",
			Write: func(ctx context.Context, value string) error { return call(named(ctx), conn, value) },
			Read:  s.read,
		}); err == nil {
			t.Errorf("%s: passes", name)
		}
	}
}

// TestPausedHolder: a holder that was stopped for longer than its lease calls late, on a
// connection and on a stream of before, and bounces; the tracer reports it.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	s, conn, _ := serve(t, new(fence.Memory), "invoices/42")
	var told []fencelock.TraceStale
	engine := memlock.New(nil)
	locks := fencelock.New(engine, &fencelock.Config{Tracer: &fencelock.Tracer{
		Stale: func(_ context.Context, d fencelock.TraceStale) { told = append(told, d) },
	}})
	paused, err := locks.Acquire(t.Context(), "invoice:42")
	if err != nil {
		t.Fatal(err)
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	stream, err := conn.NewStream(inFlight, &pourDesc, pourMethod)
	if err != nil {
		t.Fatal(err)
	}
	if err := step(stream, "before"); err != nil {
		t.Fatal(err)
	}
	engine.Lose("invoice:42") // its lease ends
	var next int64
	if err := locks.Do(t.Context(), "invoice:42", func(ctx context.Context) error {
		next, _ = fencelock.TokenFrom(ctx)
		return write(ctx, conn, "paid")
	}); err != nil {
		t.Fatal(err)
	}
	want := fence.StaleError{Resource: "invoices/42", Token: paused.Token(), Floor: next}
	for name, err := range map[string]error{
		"the open stream": step(stream, "cancelled"), "and once more": step(stream, "cancelled"),
		"a call": write(inFlight, conn, "cancelled"), "a new stream": flow(inFlight, conn, "cancelled"),
	} {
		stale, ok := errors.AsType[*fence.StaleError](err)
		if !ok || *stale != want || !errors.Is(err, fence.ErrStale) || status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: %v, want %v and FailedPrecondition", name, err, &want)
		}
	}
	if value, _ := s.read(); value != "paid" {
		t.Errorf("the invoice is %q", value)
	}
	trace := fencelock.TraceStale{Resource: "invoices/42", Name: "invoice:42", Token: want.Token, Floor: next, Kind: fencelock.KindLock, Engine: "memory"}
	if !slices.Equal(told, []fencelock.TraceStale{trace, trace, trace}) {
		t.Errorf("the tracer was told %+v, want three times %+v", told, trace)
	}
}

// TestEndOfStream: a handler that writes when the client has sent its last message, or has
// sent none, does not write what came late.
func TestEndOfStream(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{nil, {"late ", "late"}} {
		s, conn, _ := serve(t, new(fence.Memory), "invoices/42")
		under := func(token int64) context.Context {
			return fence.NewContext(t.Context(), fence.Fence{Name: "invoice:42", Token: token, Floor: token})
		}
		stream, err := conn.NewStream(under(8), &collectDesc, collectMethod)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range values {
			if err := step(stream, value); err != nil {
				t.Fatal(err)
			}
		}
		if err := write(under(9), conn, "next"); err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(new(emptypb.Empty)); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the end of a late stream of %d messages: %v, want ErrStale", len(values), err)
		}
		if value, _ := s.read(); value != "next" {
			t.Errorf("the invoice is %q after a late stream of %d messages", value, len(values))
		}
	}
}

// TestNoToken: without a fence nothing is sent, and what has none is not served.
func TestNoToken(t *testing.T) {
	t.Parallel()
	s, conn, plain := serve(t, new(fence.Memory), "r")
	for name, call := range map[string]func(context.Context, *grpc.ClientConn, string) error{"unary": write, "stream": flow} {
		if err := call(t.Context(), conn, "x"); !errors.Is(err, fence.ErrNoToken) {
			t.Errorf("%s: %v, want ErrNoToken", name, err)
		}
		for md, want := range map[string]string{
			"":     "0 values of fencelock-name",
			"name": "0 values of fencelock-token", "name a,token 1": "0 values of fencelock-floor",
			"name a,token 1,token 1,floor 1": "2 values of fencelock-token",
			"name a,token x,floor 1":         "0 < floor <= token", "name a,token 1,floor 2": "0 < floor <= token",
			"name a,token -1,floor -1": "0 < floor <= token", "name %zz,token 1,floor 1": "0 < floor <= token",
			"name a,token 9223372036854775808,floor 1": "0 < floor <= token",
		} {
			ctx := t.Context()
			for pair := range strings.SplitSeq(md, ",") {
				if key, value, _ := strings.Cut(pair, " "); key != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, "fencelock-"+key, value)
				}
			}
			if err := call(ctx, plain, "x"); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %q: %v, want InvalidArgument with %q", name, md, err, want)
			}
		}
	}
	if value, _ := s.read(); value != "" {
		t.Errorf("a call without a token wrote %q", value)
	}
}

// broken is a store that does not answer.
type broken struct{}

func (broken) Check(context.Context, string, fence.Fence) error { return errors.New("down: secret") }

// TestStoreDown: without an answer of the store nothing is served.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	s, conn, _ := serve(t, broken{}, "r")
	ctx := fence.NewContext(t.Context(), fence.Fence{Name: "invoice:42", Token: 1, Floor: 1})
	for name, call := range map[string]func(context.Context, *grpc.ClientConn, string) error{"unary": write, "stream": flow} {
		err := call(ctx, conn, "x")
		if status.Code(err) != codes.Unavailable || errors.Is(err, fence.ErrStale) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want Unavailable", name, err)
		}
	}
	if value, _ := s.read(); value != "" {
		t.Errorf("a call that was not checked wrote %q", value)
	}
}

// short is a store that keeps no names.
type short struct{}

func (short) Check(context.Context, string, fence.Fence) error {
	return fmt.Errorf("%w: secret is too long", fence.ErrResource)
}

// TestResourceThatCannotBeKept: a resource whose name the store cannot keep is the caller's
// fault and no outage, so nobody tries again.
func TestResourceThatCannotBeKept(t *testing.T) {
	t.Parallel()
	s, conn, _ := serve(t, short{}, "r")
	ctx := fence.NewContext(t.Context(), fence.Fence{Name: "invoice:42", Token: 1, Floor: 1})
	for name, call := range map[string]func(context.Context, *grpc.ClientConn, string) error{"unary": write, "stream": flow} {
		err := call(ctx, conn, "x")
		if status.Code(err) != codes.InvalidArgument || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
	if value, _ := s.read(); value != "" {
		t.Errorf("a call that was not checked wrote %q", value)
	}
}

// A fence that was forwarded with the metadata gives way to that of the context, and the
// method is the resource if nobody says better.
func TestOutgoing(t *testing.T) {
	t.Parallel()
	store := new(fence.Memory)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "fencelock-token", "7", "other", "kept")
	ctx = fence.NewContext(ctx, fence.Fence{Name: "n", Token: 9, Floor: 8})
	var sent metadata.MD
	err := fencegrpc.UnaryClientInterceptor()(ctx, putMethod, nil, nil, nil,
		func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			sent, _ = metadata.FromOutgoingContext(ctx)
			_, err := fencegrpc.UnaryServerInterceptor(store, nil)(metadata.NewIncomingContext(ctx, sent), nil,
				&grpc.UnaryServerInfo{FullMethod: putMethod}, func(context.Context, any) (any, error) { return nil, nil })
			return err
		})
	if err != nil || !slices.Equal(sent.Get("fencelock-token"), []string{"9"}) || !slices.Equal(sent.Get("other"), []string{"kept"}) {
		t.Errorf("sent %v, %v", sent, err)
	}
	err = store.Check(t.Context(), putMethod, fence.Fence{Token: 7, Floor: 7})
	if stale, ok := errors.AsType[*fence.StaleError](err); !ok || stale.Floor != 8 {
		t.Errorf("the floor of the method: %v, want 8", err)
	}
}
