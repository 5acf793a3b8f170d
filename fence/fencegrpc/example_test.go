package fencegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencegrpc"
	"github.com/fencelock/fencelock/memlock"
)

// A holder that was stopped for longer than its lease calls late, and bounces.
func Example() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(fencegrpc.UnaryServerInterceptor(new(fence.Memory), nil)))
	server.RegisterService(&service, new(invoices))
	go func() { _ = server.Serve(ln) }() // ends with Stop
	defer server.Stop()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClientInterceptor()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	put := func(ctx context.Context, value string) error {
		return conn.Invoke(ctx, "/test.Invoices/Put", wrapperspb.String(value), new(emptypb.Empty))
	}

	engine := memlock.New(nil)
	locks := fencelock.New(engine, nil)
	ctx := context.Background()
	paused, err := locks.Acquire(ctx, "invoice:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	engine.Lose("invoice:42")                           // its lease ends

	fmt.Println("next:", locks.Do(ctx, "invoice:42", func(ctx context.Context) error { return put(ctx, "paid") }))
	err = put(inFlight, "cancelled")
	fmt.Println("late:", errors.Is(err, fence.ErrStale), status.Code(err) == codes.FailedPrecondition)
	// Output:
	// next: <nil>
	// late: true true
}
