// Package goredis makes a lock engine from an application's go-redis client, so that the
// application needs no second Redis client.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	engine := goredis.New(client, nil)
//	defer engine.Close()
//	locker := fencelock.New(engine, nil)
//
// The client may be a *redis.Client, including one from redis.NewFailoverClient, or a
// *redis.ClusterClient. A *redis.Ring is refused: when one of its servers fails, it moves that
// server's keys to another one, and locks would be granted twice. The engine does not close the
// client. Close the engine first.
//
// go-redis resends a command when the connection fails. For lock scripts this is switched off,
// whatever MaxRetries says, because a script that was sent may have run. Cluster redirections are
// followed.
//
// Set Options.ContextTimeoutEnabled. A call whose context can end only by a deadline (a release, or
// an acquisition under context.Background) then runs on the caller's goroutine and takes a third
// less time. All other calls run on a separate goroutine, so that they return when their context
// ends. That goroutine ends at ReadTimeout at the latest, so do not disable ReadTimeout.
//
// Each engine that waits for locks keeps one connection for its subscription and pings the server
// on it every 10 s. Behind Sentinel, set ReadTimeout below half of the shortest TTL, so that a dead
// master is detected in time.
//
// The engine of package redislock uses rueidis, which shares one connection between concurrent
// calls. It has a higher throughput with many goroutines; for a single caller there is no
// difference.
package goredis

import (
	"github.com/fencelock/fencelock/internal/goredisconn"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/internal/open"
	"github.com/redis/go-redis/v9"
)

// New returns an engine that uses an application's client. It does no I/O; cfg may be nil.
func New(client redis.UniversalClient, cfg *redislock.Config) *redislock.Engine {
	return open.Engine.(func(redisconn.Conn, *redislock.Config) *redislock.Engine)(goredisconn.New(client), cfg)
}
