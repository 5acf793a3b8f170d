package redisconn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/redis/rueidis"
)

// TestLazy: the first dial fails, which is remembered for a moment and not for
// good; and a context that ends is not made to wait for a dial.
func TestLazy(t *testing.T) {
	t.Parallel()
	server := redistest.StartRedis(t)
	dials := 0
	stuck := make(chan struct{})
	lazy := redisconn.NewLazy(func() (rueidis.Client, error) {
		switch dials++; dials {
		case 1:
			return nil, errors.New("nobody is there")
		case 2:
			<-stuck
		}
		return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true})
	})
	if _, err := lazy.Each(context.Background(), "PING"); err == nil || err.Error() != "nobody is there" {
		t.Fatalf("got %v, want the error of the dial", err)
	}
	time.Sleep(30 * time.Millisecond) // the pause after the first failure is 20 ms
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := lazy.Each(ctx, "PING"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("during a dial that hangs: got %v, want DeadlineExceeded", err)
	}
	close(stuck)
	if _, err := lazy.Each(context.Background(), "PING"); err != nil {
		t.Fatal(err)
	}
	lazy.Close()
	if _, err := lazy.Each(context.Background(), "PING"); err == nil {
		t.Error("a closed connection works")
	}
}
