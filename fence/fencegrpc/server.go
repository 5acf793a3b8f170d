package fencegrpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/fence"
)

// Resource returns the name of the resource that a call writes, from its method
// ("/shop.Invoices/Pay") and its request. It must be safe for concurrent use.
type Resource func(ctx context.Context, method string, request any) string

// of returns the name of the resource; without a function it is the method.
func (r Resource) of(ctx context.Context, method string, request any) string {
	if r == nil {
		return method
	}
	return r(ctx, method, request)
}

// UnaryServerInterceptor passes calls with a valid token to the handler, with their fence in the
// context, where guards in the handler find it. Other calls get a status:
//
//   - FailedPrecondition, with an ErrorInfo: the token is stale.
//   - InvalidArgument: there is no valid fence, or the store does not accept the name of the
//     resource ([fence.ErrResource]).
//   - Unavailable: the store did not answer.
//
// A nil Resource means that the method is the resource.
//
// The floor is checked before the handler runs, not together with its writes. If the process is
// paused in the handler, it may write late. If that matters, use a guard such as
// fencepostgres.Check in the handler.
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

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. A stream may outlive the lock
// under which it was opened, so each message is checked before the handler receives it, with the
// fence of the stream. The end of the messages is also checked, because many handlers write then:
// for the resource of the last message, or, if there was none, for the one that Resource returns
// for an empty message. After a refusal RecvMsg returns the error and the handler receives no more
// messages. The stream ends when the handler returns that error.
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

// serverStream checks what it receives. It is used by one receiving goroutine at a time.
type serverStream struct {
	grpc.ServerStream
	ctx    context.Context // with the fence
	named  func(message any) string
	check  func(name string) error
	some   bool   // whether a message has arrived
	last   string // the resource of the last message
	failed error  // why it receives no more
}

// Context returns the context of the stream, with its fence.
func (s *serverStream) Context() context.Context { return s.ctx }

// RecvMsg receives a message, or the end of the messages, and checks the token.
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
