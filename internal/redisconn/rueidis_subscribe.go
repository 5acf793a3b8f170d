package redisconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

const (
	// pingEvery is the interval of probes on a silent subscription, so that a dead connection is
	// detected whatever the client's settings are.
	pingEvery = 10 * time.Second

	// pingLimit is how long the server may take to answer a probe or a SUBSCRIBE.
	pingLimit = 5 * time.Second
)

var errNotMaster = errors.New("the server has become a replica")

// Subscribe implements Conn. The callbacks run on the goroutine that reads the connection, so they
// must not block.
func (c *rueidisConn) Subscribe(ctx context.Context, channel string, ready func(), message func(text string)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var g Callbacks
	defer g.Close()
	s := subscription{
		channel:  channel,
		sentinel: c.client.Mode() == rueidis.ClientModeSentinel,
		ready:    func() { g.Run(ready) },
		message:  func(text string) { g.Run(func() { message(text) }) },
		ended:    make(chan error, 1),
	}
	return c.Unreached(Promptly(ctx, func() error { return s.run(ctx, c.client) }, func(err error) error { return err }))
}

// subscription is one connection with one subscribed channel.
type subscription struct {
	channel  string
	sentinel bool
	ready    func()
	message  func(text string)
	ended    chan error // receives an error if the server ends the subscription
}

// run receives messages until ctx ends or the connection breaks.
func (s *subscription) run(ctx context.Context, client rueidis.Client) error {
	conn, _ := client.Dedicate()
	defer conn.Close()
	broken := conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      func(m rueidis.PubSubMessage) { s.message(m.Message) },
		OnSubscription: s.changed,
	})
	if err := s.begin(ctx, conn); err != nil {
		return err
	}
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.ended:
			return err
		case err := <-broken:
			if err == nil {
				err = rueidis.ErrClosing
			}
			return errorOf(ctx, err)
		case <-tick.C:
			if err := s.probe(ctx, conn); err != nil {
				return err
			}
		}
	}
}

func (s *subscription) begin(ctx context.Context, conn rueidis.DedicatedClient) error {
	if s.sentinel {
		if err := s.probe(ctx, conn); err != nil {
			return err
		}
	}
	_, err := s.ask(ctx, conn, conn.B().Subscribe().Channel(s.channel).Build())
	return err
}

// changed handles the server's acknowledgement, and an end of the subscription by the server.
func (s *subscription) changed(e rueidis.PubSubSubscription) {
	if e.Kind == "subscribe" {
		s.ready()
		return
	}
	select {
	case s.ended <- errors.New("the server ended the subscription"):
	default:
	}
}

// probe checks that the server is reachable and, with Sentinel, still the master: after a failover
// the old master would not deliver messages of the new one. A server that refuses the command is
// reachable.
func (s *subscription) probe(ctx context.Context, conn rueidis.DedicatedClient) error {
	if !s.sentinel {
		_, err := s.ask(ctx, conn, conn.B().Arbitrary("PING").Build())
		return alive(err)
	}
	result, err := s.ask(ctx, conn, conn.B().Arbitrary("ROLE").Build())
	if role, err := result.ToArray(); err == nil && len(role) > 0 {
		if name, _ := role[0].ToString(); name != "master" {
			return errNotMaster
		}
	}
	return alive(err)
}

// alive ignores a refusal: the server has answered.
func alive(err error) error {
	if _, refused := Refused(err); refused {
		return nil
	}
	return err
}

// ask sends one command and waits at most pingLimit.
func (s *subscription) ask(ctx context.Context, conn rueidis.DedicatedClient, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	limited, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	result := conn.Do(limited, cmd)
	err := result.Error()
	if IsContextError(err) && ctx.Err() == nil {
		return result, fmt.Errorf("no answer within %v", pingLimit)
	}
	return result, errorOf(ctx, err)
}
