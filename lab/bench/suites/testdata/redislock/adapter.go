// Package redislock has the API of bsm/redislock on fencelock's engine for Redis, so that the tests
// of bsm/redislock run on fencelock. It is for nothing else.
package redislock

import (
	"context"
	"encoding/base64"
	"errors"
	"reflect"
	"time"

	"github.com/fencelock/fencelock/driver"
	engine "github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

var (
	ErrNotObtained = errors.New("redislock: not obtained")
	ErrLockNotHeld = errors.New("redislock: lock not held")
)

// RedisClient is a go-redis client, or a struct that embeds one.
type RedisClient interface{ redis.Scripter }

// Client acquires locks.
type Client struct{ engine *engine.Engine }

// New returns a client. fencelock needs the go-redis client itself: calls that a wrapper overrides
// are not made through the wrapper.
func New(client RedisClient) *Client {
	conn, ok := client.(*redis.Client)
	if !ok {
		conn = reflect.ValueOf(client).Elem().FieldByName("Client").Interface().(*redis.Client)
	}
	return &Client{goredis.New(conn, nil)}
}

// Obtain acquires a lock, with a client of its own.
func Obtain(ctx context.Context, client RedisClient, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return New(client).Obtain(ctx, key, ttl, opt)
}

// ObtainMulti acquires several locks, with a client of its own.
func ObtainMulti(ctx context.Context, client RedisClient, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	return New(client).ObtainMulti(ctx, keys, ttl, opt)
}

// Obtain acquires one lock.
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return c.ObtainMulti(ctx, []string{key}, ttl, opt)
}

// ObtainMulti acquires locks one after the other, and releases them if one is held.
func (c *Client) ObtainMulti(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	l := &Lock{client: c, metadata: opt.metadata()}
	for _, key := range keys {
		var grant driver.Grant
		err := opt.retry(ctx, func() (again bool, err error) {
			grant, err = c.engine.Acquire(ctx, driver.Request{Name: key, TTL: ttl, Identity: driver.Identity{Note: opt.metadata()}})
			switch {
			case errors.Is(err, driver.ErrHeld):
				return true, ErrNotObtained
			case err != nil && ctx.Err() != nil: // while the server was asked
				return false, errors.Join(ErrNotObtained, ctx.Err())
			}
			return false, err
		})
		if err != nil {
			_ = l.Release(context.WithoutCancel(ctx))
			return nil, err
		}
		l.leases = append(l.leases, driver.Lease{Name: key, Owner: grant.Owner, Token: grant.Token, TTL: ttl})
	}
	return l, nil
}

// Lock is one acquisition, or several.
type Lock struct {
	client   *Client
	leases   []driver.Lease
	metadata string
}

func (l *Lock) Key() string      { return l.leases[0].Name }
func (l *Lock) Metadata() string { return l.metadata }

// Token is the owner of the acquisition.
func (l *Lock) Token() string {
	id := uuid.MustParse(l.leases[0].Owner)
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// TTL returns what is left of the lease.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	all, err := l.client.engine.List(ctx, driver.Query{Prefix: l.Key(), Exact: true})
	if err != nil || len(all) == 0 || len(all[0].Holders) == 0 || all[0].Holders[0].Owner != l.leases[0].Owner {
		return 0, err
	}
	return all[0].Holders[0].TTL, nil
}

// Refresh renews the leases.
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, opt *Options) error {
	for i := range l.leases {
		l.leases[i].TTL = ttl
	}
	return opt.retry(ctx, func() (again bool, err error) {
		err = errors.Join(l.client.engine.Renew(ctx, l.leases)...)
		if errors.Is(err, driver.ErrNotHeld) {
			return false, ErrNotObtained
		}
		return err != nil, err
	})
}

// Release releases the locks.
func (l *Lock) Release(ctx context.Context) error {
	if l == nil {
		return ErrLockNotHeld
	}
	var all error
	for _, lease := range l.leases {
		all = errors.Join(all, l.client.engine.Release(ctx, lease))
	}
	if errors.Is(all, driver.ErrNotHeld) {
		return ErrLockNotHeld
	}
	return all
}

// Options are those that fencelock has. A token of the caller's own it has not.
type Options struct {
	RetryStrategy   RetryStrategy
	Metadata, Token string
}

func (o *Options) metadata() string {
	if o == nil {
		return ""
	}
	return o.Metadata
}

// retry calls try until it does not ask for another one, or the strategy ends.
func (o *Options) retry(ctx context.Context, try func() (again bool, err error)) error {
	for {
		again, err := try()
		if !again || o == nil || o.RetryStrategy == nil {
			return err
		}
		pause := o.RetryStrategy.NextBackoff()
		if pause < 1 {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// RetryStrategy returns the pause before the next attempt; 0 ends them.
type RetryStrategy interface{ NextBackoff() time.Duration }

type pauses func() time.Duration

func (p pauses) NextBackoff() time.Duration { return p() }

// LinearBackoff pauses for the same time again and again.
func LinearBackoff(backoff time.Duration) RetryStrategy {
	return pauses(func() time.Duration { return backoff })
}

// LimitRetry ends another strategy after some pauses.
func LimitRetry(s RetryStrategy, limit int) RetryStrategy {
	return pauses(func() time.Duration {
		if limit--; limit < 0 {
			return 0
		}
		return s.NextBackoff()
	})
}
