package fencegrpc

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/fence"
)

// UnaryClientInterceptor sends the fence of the context with each call. It calls the tracer of the
// lock after a refusal.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		out, f, err := outgoing(ctx)
		if err != nil {
			return err
		}
		stale, err := refused(invoke(out, method, request, reply, conn, opts...))
		if stale != nil {
			_ = f.Refuse(ctx, stale.Resource, stale.Floor) // for the tracer
		}
		return err
	}
}

// StreamClientInterceptor sends the fence of the context with each stream. The stream keeps it
// until it ends. RecvMsg returns the error of a refusal; SendMsg returns io.EOF then, as for any
// other status. The interceptor calls the tracer of the lock after a refusal.
func StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		out, f, err := outgoing(ctx)
		if err != nil {
			return nil, err
		}
		stream, err := open(out, desc, conn, method, opts...)
		if err != nil {
			return nil, err
		}
		return &clientStream{ClientStream: stream, ctx: ctx, fence: f}, nil
	}
}

// clientStream reports refusals.
type clientStream struct {
	grpc.ClientStream
	ctx      context.Context // the context of the lock
	fence    fence.Fence
	reported atomic.Bool
}

// RecvMsg receives a message, or the end of the stream.
func (s *clientStream) RecvMsg(message any) error {
	stale, err := refused(s.ClientStream.RecvMsg(message))
	if stale != nil && !s.reported.Swap(true) {
		_ = s.fence.Refuse(s.ctx, stale.Resource, stale.Floor) // for the tracer
	}
	return err
}
