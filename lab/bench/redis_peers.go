package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	peer "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockClient waits for the invalidation of a key it has read. One server
// needs one key, not the three of its default.
type rueidislockClient struct{ locks rueidislock.Locker }

func openRueidislock(p *process) (client, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidisOption(p.addr),
		KeyMajority:    1,
		KeyValidity:    ttl,
		NoLoopTracking: true,
		TryNextAfter:   5 * time.Second, // how long a command may take; 20 ms fails on a busy machine
	})
	return rueidislockClient{locks}, err
}

func (c rueidislockClient) acquire(ctx context.Context, name string) (lock, error) {
	held, cancel, err := c.locks.WithContext(ctx, name)
	return rueidislockLock{held, cancel}, err
}

func (c rueidislockClient) close() { c.locks.Close() }

type rueidislockLock struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (l rueidislockLock) release() error { l.cancel(); return nil }
func (l rueidislockLock) err() error     { return l.ctx.Err() }

// redislockClient polls, ten times a second.
type redislockClient struct{ locks *peer.Client }

func openRedislock(p *process) (client, error) {
	rdb, err := p.goredisClient()
	return redislockClient{peer.New(rdb)}, err
}

func (c redislockClient) acquire(ctx context.Context, name string) (lock, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // without it the TTL would bound the wait
	defer cancel()
	l, err := c.locks.Obtain(ctx, "redislock:"+name, ttl, &peer.Options{RetryStrategy: peer.LinearBackoff(100 * time.Millisecond)})
	return redislockLock{l}, err
}

func (redislockClient) close() {}

type redislockLock struct{ *peer.Lock }

func (l redislockLock) release() error { return l.Release(context.Background()) }
func (redislockLock) err() error       { return nil }

// redsyncClient polls every 50 to 250 ms, its default.
type redsyncClient struct {
	locks   *redsync.Redsync
	options []redsync.Option
}

func openRedsync(p *process) (client, error) {
	rdb, err := p.goredisClient()
	return redsyncClient{redsync.New(redsyncpool.NewPool(rdb)), []redsync.Option{redsync.WithExpiry(ttl)}}, err
}

func (c redsyncClient) acquire(ctx context.Context, name string) (lock, error) {
	m := c.locks.NewMutex("redsync:"+name, append(slices.Clone(c.options), redsync.WithTries(math.MaxInt32))...)
	return redsyncLock{m}, m.LockContext(ctx)
}

func (redsyncClient) close() {}

type redsyncLock struct{ *redsync.Mutex }

func (l redsyncLock) release() error {
	ok, err := l.Unlock()
	if err == nil && !ok {
		return errors.New("not held")
	}
	return err
}

func (redsyncLock) err() error { return nil }
