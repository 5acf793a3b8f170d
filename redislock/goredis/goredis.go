// Package goredis makes an engine of an application's go-redis client, so that the application
// needs no second client.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	engine := goredis.New(client, nil)
//	defer engine.Close()
//	locker := fencelock.New(engine, nil)
//
// The client may be a *redis.Client, also one of redis.NewFailoverClient, or a
// *redis.ClusterClient. A *redis.Ring is refused: when one of its servers fails, it moves that
// server's keys to another one, and locks would be granted twice. The application closes the
// client, after the engine.
//
// # Options of the client
//
// Set Options.ContextTimeoutEnabled. Then a call whose context can end only by a deadline (a
// release, or an acquisition under context.Background) runs on its caller's goroutine and takes a
// third less time. All other calls run on a goroutine of their own, so that they return when their
// context ends. go-redis ends that goroutine at ReadTimeout at the latest, so do not disable
// ReadTimeout.
//
// Behind Sentinel, set ReadTimeout below half of the shortest TTL, so that a dead master is noticed
// in time. Each engine that waits keeps one connection for its subscription, and pings it every 10
// s.
//
// go-redis repeats commands when a connection fails. For the scripts of locks this is disabled,
// whatever MaxRetries is, since the first one may have been executed. Redirections of a Cluster are
// followed.
//
// Package redislock itself, on rueidis, shares a connection between calls. It is faster with many
// goroutines; with a single caller there is no difference.
package goredis

import (
	"github.com/fencelock/fencelock/internal/goredisconn"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/internal/open"
	"github.com/redis/go-redis/v9"
)

// New returns an engine on an application's client. It does no I/O. The cfg may be
// nil.
func New(client redis.UniversalClient, cfg *redislock.Config) *redislock.Engine {
	return open.Engine.(func(redisconn.Conn, *redislock.Config) *redislock.Engine)(goredisconn.New(client), cfg)
}
