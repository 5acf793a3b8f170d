package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// publisher and subscriber pass a message: the least that waking another process
// through Redis can cost.
type publisher struct{ rdb rueidis.Client }

func openPublisher(p *process) (client, error) {
	rdb, err := p.rueidisClient()
	return publisher{rdb}, err
}

func (p publisher) acquire(_ context.Context, name string) (lock, error) {
	return message{p.rdb, "publish:" + name}, nil
}

func (publisher) close() {}

type message struct {
	rdb     rueidis.Client
	channel string
}

// release publishes the message; once more if nobody has subscribed yet.
func (m message) release() error {
	for {
		heard, err := m.rdb.Do(context.Background(), m.rdb.B().Publish().Channel(m.channel).Message("go").Build()).AsInt64()
		if err != nil || heard > 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func (message) err() error { return nil }

type subscriber struct{ rdb rueidis.Client }

func openSubscriber(p *process) (client, error) {
	rdb, err := p.rueidisClient()
	return subscriber{rdb}, err
}

func (s subscriber) acquire(ctx context.Context, name string) (lock, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	got := false
	err := s.rdb.Receive(ctx, s.rdb.B().Subscribe().Channel("publish:"+name).Build(), func(rueidis.PubSubMessage) {
		got = true
		cancel()
	})
	if got {
		return received{}, nil
	}
	return nil, fmt.Errorf("no message: %w", err)
}

func (subscriber) close() {}

type received struct{}

func (received) release() error { return nil }
func (received) err() error     { return nil }
