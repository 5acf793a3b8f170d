package main

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// keeper renews a lock every third of its TTL, which redsync and redislock leave to their users. A
// renewal that fails is the signal of the loss.
type keeper struct {
	lost   atomic.Bool
	cancel context.CancelFunc
	ended  chan struct{} // closed when the goroutine has ended
}

// keep starts to renew. The goroutine ends with stop, or when the lock is lost.
func keep(ttl time.Duration, renew func(context.Context) error) *keeper {
	ctx, cancel := context.WithCancel(context.Background())
	k := &keeper{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(k.ended)
		for tick := time.NewTicker(ttl / 3); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if renew(ctx) != nil && ctx.Err() == nil {
				k.lost.Store(true)
				return
			}
		}
	}()
	return k
}

func (k *keeper) err() error {
	if k.lost.Load() {
		return errLost
	}
	return nil
}

func (k *keeper) stop() {
	k.cancel()
	<-k.ended
}

// redsyncClient is redsync on go-redis with the defaults of both, except for the tries.
type redsyncClient struct {
	locks *redsync.Redsync
	conns []*goredis9.Client
	ttl   time.Duration

	checks bool // the holder checks Until before each step
}

func openRedsync(s spec) (client, error)      { return newRedsync(s, false), nil }
func openRedsyncUntil(s spec) (client, error) { return newRedsync(s, true), nil }

func newRedsync(s spec, checks bool) redsyncClient {
	c := redsyncClient{ttl: s.TTL, checks: checks}
	var pools []redis.Pool
	for _, addr := range s.Addrs {
		conn := goredis9.NewClient(&goredis9.Options{Addr: addr})
		c.conns, pools = append(c.conns, conn), append(pools, goredis.NewPool(conn))
	}
	c.locks = redsync.New(pools...)
	return c
}

func (c redsyncClient) acquire(ctx context.Context, name string) (hold, error) {
	m := c.locks.NewMutex(name, redsync.WithExpiry(c.ttl), redsync.WithTries(math.MaxInt32))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	until := &atomic.Pointer[time.Time]{}
	until.Store(new(m.Until()))
	h := redsyncHold{mutex: m, keeper: keep(c.ttl, func(ctx context.Context) error {
		ok, err := m.ExtendContext(ctx)
		if err == nil && !ok {
			return errLost
		}
		until.Store(new(m.Until()))
		return err
	})}
	if c.checks {
		h.until = until
	}
	return h, nil
}

func (c redsyncClient) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

type redsyncHold struct {
	mutex *redsync.Mutex
	until *atomic.Pointer[time.Time] // of the last renewal; nil if the holder does not check it
	*keeper
}

func (h redsyncHold) err() error {
	if h.until != nil && !time.Now().Before(*h.until.Load()) {
		return errLost
	}
	return h.keeper.err()
}

func (h redsyncHold) release() error {
	h.stop()
	ok, err := h.mutex.Unlock()
	if err == nil && !ok {
		return errLost
	}
	return err
}

// redislockClient is bsm/redislock, which polls ten times a second here.
type redislockClient struct {
	conn  *goredis9.Client
	locks *redislock.Client
	ttl   time.Duration
}

func openRedislock(s spec) (client, error) {
	conn := goredis9.NewClient(&goredis9.Options{Addr: s.Addrs[0]})
	return redislockClient{conn, redislock.New(conn), s.TTL}, nil
}

func (c redislockClient) acquire(ctx context.Context, name string) (hold, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // without it, the TTL bounds the wait
	defer cancel()
	l, err := c.locks.Obtain(ctx, name, c.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	if err != nil {
		return nil, err
	}
	return redislockHold{l, keep(c.ttl, func(ctx context.Context) error { return l.Refresh(ctx, c.ttl, nil) })}, nil
}

func (c redislockClient) close() { _ = c.conn.Close() }

type redislockHold struct {
	lock *redislock.Lock
	*keeper
}

func (h redislockHold) release() error {
	h.stop()
	return h.lock.Release(context.Background())
}

// rueidislockClient is rueidislock with one key, which is enough for one server, and its default of
// TryNextAfter unless the scenario sets another one.
type rueidislockClient struct{ locks rueidislock.Locker }

func openRueidislock(s spec) (client, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: s.Addrs},
		KeyMajority:    1,
		KeyValidity:    s.TTL,
		NoLoopTracking: true,
		TryNextAfter:   time.Second, // 20 ms, the default, can fail on a busy machine
	})
	return rueidislockClient{locks}, err
}

func (c rueidislockClient) acquire(ctx context.Context, name string) (hold, error) {
	held, cancel, err := c.locks.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidislockHold{held, cancel}, nil
}

func (c rueidislockClient) close() { c.locks.Close() }

type rueidislockHold struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (h rueidislockHold) err() error { return h.ctx.Err() }

func (h rueidislockHold) release() error {
	if h.ctx.Err() != nil {
		return errors.New("released or lost before")
	}
	h.cancel()
	return nil
}
