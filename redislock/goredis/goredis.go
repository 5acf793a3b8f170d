// Package goredis makes a lock engine of an application's go-redis client, so
// that it needs no second client of another kind.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	engine := goredis.New(client, nil)
//	defer engine.Close()
//	locker := fencelock.New(engine, nil)
//
// The client may be a *redis.Client, also one of redis.NewFailoverClient, or a
// *redis.ClusterClient. A *redis.Ring is refused: when one of its servers fails it
// moves that server's keys to another, and locks would be granted twice. The
// client stays the caller's, who closes it after the engine.
//
// go-redis sends a command again when the connection fails; for the scripts of a
// lock this is switched off, whatever MaxRetries says, since one that was sent may
// have run. Redirections of a Cluster are followed.
//
// Set Options.ContextTimeoutEnabled: then a call whose context can end only by a
// deadline (a release, or an acquisition under context.Background) runs on the goroutine of
// its caller, and takes a third less time. All other calls run on a goroutine of their own, so
// that they return when their context ends. go-redis ends that goroutine at ReadTimeout at the
// latest, so do not switch ReadTimeout off.
//
// Each engine that waits keeps one connection for its subscription, and asks it
// every 10 s whether the server is there. Behind Sentinel, set ReadTimeout below
// half of the shortest TTL, so that a dead master is noticed in time.
//
// The engine of package redislock itself, on rueidis, shares a connection between
// calls and does more with many goroutines at once; a single caller sees no
// difference.
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
