package fencegrpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/fence"
)

// Resource names what a call writes, by its method ("/shop.Invoices/Pay") and its request.
// It is called from many goroutines.
type Resource func(ctx context.Context, method string, request any) string

// of names a resource; without a function it is the method.
func (r Resource) of(ctx context.Context, method string, request any) string {
	if r == nil {
		return method
	}
	return r(ctx, method, request)
}

// UnaryServerInterceptor passes on the calls whose token is not stale, with their fence in
// the context, so that a guard of what the handler writes finds it. The others are
// answered: FailedPrecondition, with an ErrorInfo, for a stale token; InvalidArgument
// without a fence, with a wrong one, or for a resource that the store cannot keep
// ([fence.ErrResource]); Unavailable if the store did not answer. A nil Resource takes the
// method.
//
// The floor is checked before the handler runs and not with its writes: a call that is
// stopped in the handler may write late. Where that matters, the handler uses a guard
// itself, such as fencepostgres.Check.
func UnaryServerInterceptor(store fence.Store, resource Resource) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		ctx, f, err := incoming(ctx)
		if err != nil {
			return nil, err
		}
		if err := check(ctx, store, resource.of(ctx, info.FullMethod, request), f); err != nil {
			return nil, err
		}
		return handle(ctx, request)
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams. A stream may outlive the
// lock it was opened under, so each message is checked before the handler receives it, by
// the fence that came with the stream. So is the end of the messages, at which many handlers
// write: for the resource of the last one, or for what Resource makes of an empty message if
// there was none. A refusal ends the stream if the handler returns the error of RecvMsg, as
// handlers do; and the handler receives nothing after it.
func StreamServerInterceptor(store fence.Store, resource Resource) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, f, err := incoming(stream.Context())
		if err != nil {
			return err
		}
		return handle(server, &serverStream{
			ServerStream: stream, ctx: ctx,
			named: func(message any) string { return resource.of(ctx, info.FullMethod, message) },
			check: func(name string) error { return check(ctx, store, name, f) },
		})
	}
}

// serverStream checks what it receives. One goroutine at a time receives.
type serverStream struct {
	grpc.ServerStream
	ctx    context.Context // with the fence
	named  func(message any) string
	check  func(name string) error
	some   bool   // a message has come
	last   string // the resource of the last one
	failed error  // why it receives no more
}

// Context returns the context of the stream, with its fence.
func (s *serverStream) Context() context.Context { return s.ctx }

// RecvMsg receives a message, or the end of them, whose token is not stale.
func (s *serverStream) RecvMsg(message any) error {
	if s.failed != nil {
		return s.failed
	}
	err := s.ServerStream.RecvMsg(message)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err == nil || !s.some {
		s.last, s.some = s.named(message), true
	}
	if s.failed = s.check(s.last); s.failed != nil {
		return s.failed
	}
	return err
}
