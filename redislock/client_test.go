package redislock_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// rueidisOption are the settings that doc.go recommends, and a small queue of requests, which is
// made sooner.
func rueidisOption(addrs ...string) rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: addrs, DisableCache: true, ConnWriteTimeout: 5 * time.Second, RingScaleEachConn: 5}
	o.Dialer.KeepAlive = 10 * time.Second
	return o
}

func rueidisClient(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// connect makes a client. On a slow machine a dial may take longer than the client waits.
func connect(o rueidis.ClientOption) (client rueidis.Client, err error) {
	for end := time.Now().Add(patience); ; {
		client, err = rueidis.NewClient(o)
		slow, ok := errors.AsType[net.Error](err)
		if err == nil || !ok || !slow.Timeout() || time.Now().After(end) {
			return client, err
		}
	}
}
