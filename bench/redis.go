package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// redisSuite is redislock and its peers. Each of them runs as its own pages
// advise, with the same lease.
var redisSuite = suite{
	name:  "redis",
	title: "Redis",
	notes: "`bare` is the two commands of a lock on the same client as ours, `SET NX PX` and a compare-and-delete script; for the hand-over it is one\n" +
		"PUBLISH to a subscribed process. rueidislock runs with one key, which is enough for one server; redislock polls every 100 ms, redsync\n" +
		"every 50 to 250 ms, its default. Commands inside of scripts are Redis commands that a script calls.\n",
	contestants: []contestant{
		{name: bare, open: openBare, sends: []string{"set"}},
		{name: ours, open: openOurs, renews: true},
		{name: "rueidislock", open: openRueidislock, renews: true},
		{name: "redislock", open: openRedislock},
		{name: "redsync", open: openRedsync, sends: []string{"set"}},
	},
	signal: contestant{name: "publish", open: openPublisher, wait: openSubscriber},
	start:  startRedis,
}

// process is what one process has open to the server. Contestants share it.
type process struct {
	addr    string
	mu      sync.Mutex // guards rueidis, goredis
	rueidis rueidis.Client
	goredis *redis.Client
}

func rueidisOption(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{addr},
		Dialer:      net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}, // rueidis pings as often
	}
}

func (p *process) rueidisClient() (rueidis.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.rueidis == nil {
		p.rueidis, err = rueidis.NewClient(rueidisOption(p.addr))
	}
	return p.rueidis, err
}

func (p *process) goredisClient() *redis.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.goredis == nil {
		p.goredis = redis.NewClient(&redis.Options{Addr: p.addr})
	}
	return p.goredis
}

func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rueidis != nil {
		p.rueidis.Close()
	}
	if p.goredis != nil {
		_ = p.goredis.Close()
	}
}

// ourClient is this library.
type ourClient struct{ locks *fencelock.Locker }

func openOurs(p *process) (client, error) {
	rdb, err := p.rueidisClient()
	if err != nil {
		return nil, err
	}
	return ourClient{fencelock.New(redislock.New(rdb, nil), &fencelock.Config{TTL: ttl})}, nil
}

func (c ourClient) acquire(ctx context.Context, name string) (lock, error) {
	l, err := c.locks.Acquire(ctx, name)
	return ourLock{l}, err
}

func (ourClient) close() {}

type ourLock struct{ *fencelock.Lock }

func (l ourLock) release() error { return l.Release() }
func (l ourLock) err() error     { return l.Err() }

// bareClient sends the two commands of every lock on Redis, and nothing else.
type bareClient struct{ rdb rueidis.Client }

var compareAndDelete = rueidis.NewLuaScript(
	`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

func openBare(p *process) (client, error) {
	rdb, err := p.rueidisClient()
	return bareClient{rdb}, err
}

func (c bareClient) acquire(ctx context.Context, name string) (lock, error) {
	l := bareLock{rdb: c.rdb, key: "bare:" + name, owner: rand.Text()}
	err := c.rdb.Do(ctx, c.rdb.B().Set().Key(l.key).Value(l.owner).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error()
	return l, err
}

func (bareClient) close() {}

type bareLock struct {
	rdb        rueidis.Client
	key, owner string
}

func (l bareLock) release() error {
	n, err := compareAndDelete.Exec(context.Background(), l.rdb, []string{l.key}, []string{l.owner}).AsInt64()
	if err == nil && n != 1 {
		return errors.New("not held")
	}
	return err
}

func (bareLock) err() error { return nil }
