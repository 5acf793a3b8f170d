package goredisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/redis/go-redis/v9"
)

const (
	// pingEvery is the interval of probes on a silent subscription, so that a dead connection is
	// detected whatever the client's settings are.
	pingEvery = 10 * time.Second

	// pingLimit is how long the server may take to answer a probe or a SUBSCRIBE.
	pingLimit = 5 * time.Second
)

// Subscribe implements redisconn.Conn. A subscription that is abandoned when ctx ends may still
// receive messages; they do not reach the callbacks.
func (c *conn) Subscribe(ctx context.Context, channel string, ready func(), message func(text string)) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	var g redisconn.Callbacks
	defer g.Close()
	return c.Unreached(redisconn.Promptly(ctx, func() error {
		return listen(ctx, c.client, channel,
			func() { g.Run(ready) },
			func(text string) { g.Run(func() { message(text) }) })
	}, func(err error) error { return err }))
}

// listen receives messages until ctx ends or the connection breaks. The client would silently
// subscribe again after an error, so listen returns the first one. An unanswered probe also counts
// as an error, since a connection can die silently.
func listen(ctx context.Context, client redis.UniversalClient, channel string, ready func(), message func(text string)) error {
	sub := client.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // interrupts a read, which ignores the context
	defer stop()
	probing := true // SUBSCRIBE is the first probe
	for {
		limit := pingEvery
		if probing {
			limit = pingLimit
		}
		event, err := sub.ReceiveTimeout(ctx, limit)
		switch {
		case err == nil:
		case !isTimeout(err) || ctx.Err() != nil:
			return errorOf(ctx, err)
		case probing:
			return fmt.Errorf("no answer within %v", pingLimit)
		default:
			if err := sub.Ping(ctx); err != nil {
				return errorOf(ctx, err)
			}
			probing = true
			continue
		}
		probing = false
		switch e := event.(type) {
		case *redis.Message:
			message(e.Payload)
		case *redis.Subscription:
			if e.Kind != "subscribe" {
				return errors.New("the server ended the subscription")
			}
			ready()
		}
	}
}

// isTimeout reports whether the connection was merely silent.
func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
