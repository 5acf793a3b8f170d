// Package fencegrpc is the guard of package fence for gRPC. Client interceptors send the fencing
// token of a lock with each call. Server interceptors refuse calls with a stale token, as
// [fence.Handler] does for HTTP. It is a module of its own, so that other users do not need gRPC.
//
//	conn, err := grpc.NewClient(address,
//		grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClientInterceptor()),
//		grpc.WithChainStreamInterceptor(fencegrpc.StreamClientInterceptor()))
//
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(fencegrpc.UnaryServerInterceptor(store, resource)),
//		grpc.ChainStreamInterceptor(fencegrpc.StreamServerInterceptor(store, resource)))
//
// A call without a fence in its context fails with [fence.ErrNoToken] and is not sent. A refused
// call returns a *[fence.StaleError] to the client. Its status is FailedPrecondition: unlike
// Aborted and Unavailable it says that a retry does not help, since a stale token stays stale.
package fencegrpc

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fencelock/fencelock/fence"
)

// The metadata of a fenced call: the percent-encoded name of the lock, and two decimal numbers.
const (
	keyName  = "fencelock-name"
	keyToken = "fencelock-token"
	keyFloor = "fencelock-floor"
)

// The ErrorInfo of a refusal.
const (
	domain      = "github.com/fencelock/fencelock"
	reasonStale = "STALE_TOKEN"
)

// outgoing returns a context whose calls have the fence of ctx as metadata.
func outgoing(ctx context.Context) (context.Context, fence.Fence, error) {
	f, err := fence.From(ctx)
	if err != nil {
		return nil, f, err
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	md = md.Copy()
	md.Set(keyName, url.PathEscape(f.Name))
	md.Set(keyToken, strconv.FormatInt(f.Token, 10))
	md.Set(keyFloor, strconv.FormatInt(f.Floor, 10))
	return metadata.NewOutgoingContext(ctx, md), f, nil
}

// incoming returns a context with the fence of a call, or a status that says what is wrong with it.
func incoming(ctx context.Context) (context.Context, fence.Fence, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	var values []string
	for _, key := range []string{keyName, keyToken, keyFloor} {
		v := md.Get(key)
		if len(v) != 1 {
			return nil, fence.Fence{}, status.Errorf(codes.InvalidArgument, "the call has %d values of %s, want one", len(v), key)
		}
		values = append(values, v[0])
	}
	name, err := url.PathUnescape(values[0])
	token, err2 := strconv.ParseInt(values[1], 10, 64)
	floor, err3 := strconv.ParseInt(values[2], 10, 64)
	if errors.Join(err, err2, err3) != nil || floor <= 0 || floor > token {
		return nil, fence.Fence{}, status.Error(codes.InvalidArgument, "the call has no valid fencing token: want 0 < floor <= token")
	}
	f := fence.Fence{Name: name, Token: token, Floor: floor}
	return fence.NewContext(ctx, f), f, nil
}

// check checks the fence with a store and converts its error to a status.
func check(ctx context.Context, store fence.Store, resource string, f fence.Fence) error {
	err := store.Check(ctx, resource, f)
	if err == nil {
		return nil
	}
	stale, ok := errors.AsType[*fence.StaleError](err)
	switch {
	case errors.Is(err, fence.ErrResource):
		return status.Error(codes.InvalidArgument, "the name of the resource is too long, or not UTF-8")
	case !ok:
		return status.Error(codes.Unavailable, "the fencing token could not be checked")
	}
	refusal, err := status.New(codes.FailedPrecondition, "stale fencing token").WithDetails(&errdetails.ErrorInfo{
		Domain: domain, Reason: reasonStale, Metadata: map[string]string{
			"resource": url.PathEscape(resource), // metadata of a detail must be UTF-8
			"token":    strconv.FormatInt(f.Token, 10),
			"floor":    strconv.FormatInt(stale.Floor, 10),
		},
	})
	if err != nil {
		return status.Error(codes.FailedPrecondition, "stale fencing token")
	}
	return refusal.Err()
}

// refused returns the error of a call. If the server refused its token, the error wraps the
// *fence.StaleError and the status.
func refused(err error) (*fence.StaleError, error) {
	s, ok := status.FromError(err)
	if err == nil || !ok || s.Code() != codes.FailedPrecondition {
		return nil, err
	}
	for _, detail := range s.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != domain || info.GetReason() != reasonStale {
			continue
		}
		resource, err1 := url.PathUnescape(info.GetMetadata()["resource"])
		token, err2 := strconv.ParseInt(info.GetMetadata()["token"], 10, 64)
		floor, err3 := strconv.ParseInt(info.GetMetadata()["floor"], 10, 64)
		if errors.Join(err1, err2, err3) == nil {
			stale := &fence.StaleError{Resource: resource, Token: token, Floor: floor}
			return stale, fmt.Errorf("%w: %w", stale, err)
		}
	}
	return nil, err
}
