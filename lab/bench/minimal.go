package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// minimalClient is the least that a fair lock on Redis can do: a list of who waits,
// and a release that makes the first of them the holder and tells it. Nobody
// recovers from a waiter that dies or gives up.
type minimalClient struct {
	rdb     rueidis.Client
	channel string
	stop    context.CancelFunc

	mu      *sync.Mutex // guards waiting
	waiting map[string]chan struct{}
}

var (
	//go:embed minimal_acquire.lua
	minimalAcquireLua string
	//go:embed minimal_release.lua
	minimalReleaseLua string
	minimalAcquire    = rueidis.NewLuaScript(minimalAcquireLua)
	minimalRelease    = rueidis.NewLuaScript(minimalReleaseLua)
)

func openMinimal(p *process) (client, error) {
	rdb, err := p.rueidisClient()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c := minimalClient{rdb, "minimal:" + rand.Text(), stop, &sync.Mutex{}, map[string]chan struct{}{}}
	ready := make(chan struct{})
	hooked, done := rdb.Dedicate()
	lost := hooked.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(rueidis.PubSubSubscription) { close(ready) },
		OnMessage:      func(m rueidis.PubSubMessage) { c.granted(m.Message) },
	})
	if err := hooked.Do(ctx, hooked.B().Subscribe().Channel(c.channel).Build()).Error(); err != nil {
		return nil, err
	}
	go func() { // ends with close
		<-ctx.Done()
		done()
	}()
	select {
	case <-ready:
		return c, nil
	case err := <-lost:
		return nil, fmt.Errorf("no subscription: %w", err)
	}
}

// granted tells the goroutine that waits for an owner.
func (c minimalClient) granted(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wake, ok := c.waiting[owner]; ok {
		close(wake)
		delete(c.waiting, owner)
	}
}

func (c minimalClient) acquire(ctx context.Context, name string) (lock, error) {
	owner, wake := rand.Text(), make(chan struct{})
	c.mu.Lock()
	c.waiting[owner] = wake
	c.mu.Unlock()
	l := minimalLock{c.rdb, name, owner}
	answer, err := minimalAcquire.Exec(ctx, c.rdb, l.keys(), []string{owner, c.channel, fmt.Sprint(ttl.Milliseconds())}).ToString()
	if err != nil || strings.HasPrefix(answer, "granted") {
		c.granted(owner)
		return l, err
	}
	select {
	case <-wake:
		return l, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c minimalClient) close() { c.stop() }

type minimalLock struct {
	rdb         rueidis.Client
	name, owner string
}

func (l minimalLock) keys() []string {
	return []string{"minimal:" + l.name, "minimal-queue:" + l.name, "minimal-token:" + l.name}
}

func (l minimalLock) release() error {
	n, err := minimalRelease.Exec(context.Background(), l.rdb, l.keys(), []string{l.owner, fmt.Sprint(ttl.Milliseconds())}).AsInt64()
	if err == nil && n != 1 {
		return errors.New("not held")
	}
	return err
}

func (minimalLock) err() error { return nil }
