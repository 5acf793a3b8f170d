package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strings"
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
	notes: "fencelock and rueidislock run on rueidis. `on go-redis` is fencelock on go-redis, the client that\n" +
		"redislock and redsync use. `bare` sends the two commands of every lock on rueidis: `SET NX PX`,\n" +
		"and a script that compares and deletes. For the hand-over, it is one PUBLISH to a process that\n" +
		"subscribes. `minimal` is the least code, on rueidis, with a growing token and a queue. rueidislock\n" +
		"uses one key, which is enough for one server. redislock polls every 100 ms, redsync every 50 to\n" +
		"250 ms (its default). CPU times are for one acquire and release. \"In scripts too\" counts the Redis\n" +
		"commands that scripts call.\n",
	pictures: "![single hand-overs to a waiting process, for each library](../../docs/pictures/handover.svg)\n\n" +
		"![memory, CPU time and commands, by the number of locks and waiters](../../docs/pictures/cost.svg)\n\n",
	contestants: []contestant{
		{name: bare, open: openBare, sends: []string{"set"}},
		{name: minimal, open: openMinimal},
		{name: ours, open: openOurs, renews: true},
		{name: onGoredis, open: openOursOnGoredis, renews: true},
		{name: "rueidislock", open: openRueidislock, renews: true},
		{name: "redislock", open: openRedislock},
		{name: "redsync", open: openRedsync, sends: []string{"set"}},
	},
	signal: contestant{name: "publish", open: openPublisher, wait: openSubscriber},
	measures: []measure{
		{"alone", alone}, {"parallel", parallel}, {"handover", handover}, {"idle", idle}, {"held", held},
	},
	bars: map[string][]bar{
		// Tokens that outlive the lock, and a queue, cost minimal 1.2 x redislock alone.
		"alone":    {atMost(minimal, 1.15), atMost("redislock", 1.35), atMost("redislock", 1.55).alsoOnGoredis()},
		"parallel": {atMost(minimal, 1.7), atMost("rueidislock", 1.35)},
		"handover": {noMore(0.7e-3), atMost("rueidislock", 1), atLeastTimesFaster("redsync", 100)},
	},
	per:   1500,
	start: startRedis,
}

func rueidisOption(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{addr},
		Dialer:      net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}, // rueidis pings as often
	}
}

// rueidisClient returns a client of the server, or of the first of several.
func (p *process) rueidisClient() (rueidis.Client, error) {
	first, _, _ := strings.Cut(p.addr, ",")
	return p.rueidisAt(first)
}

func (p *process) rueidisAt(addr string) (rueidis.Client, error) {
	return shared(p, "rueidis "+addr, func() (rueidis.Client, func(), error) {
		rdb, err := rueidis.NewClient(rueidisOption(addr))
		if err != nil {
			return nil, nil, err
		}
		return rdb, rdb.Close, nil
	})
}

func (p *process) goredisClient() (*redis.Client, error) { return p.goredisAt(p.addr) }

func (p *process) goredisAt(addr string) (*redis.Client, error) {
	return shared(p, "go-redis "+addr, func() (*redis.Client, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		return rdb, func() { _ = rdb.Close() }, nil
	})
}

// ourClient is this library on one of its engines.
type ourClient struct {
	locks *fencelock.Locker
	shut  func()
}

func openOurs(p *process) (client, error) {
	rdb, err := p.rueidisClient()
	if err != nil {
		return nil, err
	}
	return ourClient{fencelock.New(redislock.New(rdb, nil), nil).With(fencelock.Options{TTL: ttl}), func() {}}, nil
}

func (c ourClient) acquire(ctx context.Context, name string) (lock, error) {
	l, err := c.locks.Acquire(ctx, name)
	return ourLock{l}, err
}

func (c ourClient) close() { c.shut() }

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
