package goredis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

// TestWrongPassword: a client that has never logged in has a wrong configuration. That is no
// failover, so the request is not repeated.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	addr := redistest.StartRedis(t, "--requirepass", "secret").Addr()
	for _, password := range []string{"", "wrong"} {
		client := redis.NewClient(&redis.Options{Addr: addr, Password: password})
		t.Cleanup(func() { _ = client.Close() })
		engine := goredis.New(client, nil)
		t.Cleanup(func() { _ = engine.Close() })
		for _, wait := range []bool{false, true} {
			_, err := engine.Acquire(t.Context(), driver.Request{Name: "a", TTL: time.Second, Wait: wait})
			if !errors.Is(err, driver.ErrConfig) {
				t.Errorf("password %q, wait %v: %v, want ErrConfig", password, wait, err)
			}
		}
	}
}
