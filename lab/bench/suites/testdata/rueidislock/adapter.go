// Package rueidislock has the API of rueidis' package rueidislock on fencelock, so that its tests
// run on fencelock. It is for nothing else.
package rueidislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

var (
	ErrNotLocked    = errors.New("not locked")
	ErrLockerClosed = errors.New("locker closed")
)

// LockerOption has the options that the tests set. NoLoopTracking and FallbackSETPX choose commands
// that fencelock does not use.
type LockerOption struct {
	ClientBuilder                 func(rueidis.ClientOption) (rueidis.Client, error)
	ClientOption                  rueidis.ClientOption
	NoLoopTracking, FallbackSETPX bool
}

// Locker acquires locks.
type Locker interface {
	WithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)
	TryWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)
	ForceWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)
	Client() rueidis.Client
	Close()
}

// locker has the fields that the tests read and set. gates is not used: fencelock's waiters queue on
// the server.
type locker struct {
	prefix             string
	validity           time.Duration
	interval, timeout  time.Duration
	majority, totalcnt int32
	mu                 sync.RWMutex
	gates              map[string]*gate

	client rueidis.Client
	engine *redislock.Engine
	locks  *fencelock.Locker
	closed context.Context // ended by Close
	shut   context.CancelFunc

	forcing sync.WaitGroup // calls of ForceWithContext
}

type gate struct {
	ch chan struct{}
	w  int
}

// NewLocker connects to a server.
func NewLocker(o LockerOption) (Locker, error) {
	build := o.ClientBuilder
	if build == nil {
		build = rueidis.NewClient
	}
	client, err := build(o.ClientOption)
	if err != nil {
		return nil, err
	}
	engine := redislock.New(client, nil)
	m := &locker{validity: 5 * time.Second, majority: 2, totalcnt: 3, client: client, engine: engine, locks: fencelock.New(engine, nil)}
	m.closed, m.shut = context.WithCancel(context.Background())
	return m, nil
}

// keyname is the key of a lock: fencelock has one, not several.
func keyname(prefix, name string, _ int32) string { return prefix + "lock:" + name }

// onInvalidations has nothing to do: fencelock does not use client-side caching.
func (m *locker) onInvalidations([]rueidis.RedisMessage) {}

func (m *locker) Client() rueidis.Client { return m.client }

func (m *locker) WithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error) {
	return m.take(ctx, name, m.options().Acquire)
}

func (m *locker) TryWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error) {
	return m.take(ctx, name, m.options().TryAcquire)
}

// ForceWithContext breaks the lock and then waits for it. Close waits for both, since rueidislock
// takes a lock by force in one step.
func (m *locker) ForceWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error) {
	m.forcing.Add(1)
	defer m.forcing.Done()
	if _, err := m.engine.Break(ctx, name, "taken by force"); err != nil && !errors.Is(err, fencelock.ErrNotHeld) {
		return nil, nil, err
	}
	return m.WithContext(ctx, name)
}

func (m *locker) options() *fencelock.Locker {
	return m.locks.With(fencelock.Options{TTL: m.validity})
}

func (m *locker) take(ctx context.Context, name string, acquire func(context.Context, string) (*fencelock.Lock, error)) (context.Context, context.CancelFunc, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.closed, cancel)()
	l, err := acquire(waiting, name)
	switch {
	case m.closed.Err() != nil:
		return nil, nil, ErrLockerClosed
	case err != nil && ctx.Err() == nil && errors.Is(err, fencelock.ErrHeld):
		return nil, nil, ErrNotLocked
	case err != nil:
		return nil, nil, err
	}
	held, end := context.WithCancel(l.ContextWith(ctx))
	context.AfterFunc(m.closed, end)
	return held, func() {
		_ = l.Release()
		end()
	}, nil
}

// Close ends all waits and holds. The client is not closed: keys of holds that nobody has released
// expire.
func (m *locker) Close() {
	m.forcing.Wait()
	m.shut()
	_ = m.engine.Close()
	m.client.Close()
}
