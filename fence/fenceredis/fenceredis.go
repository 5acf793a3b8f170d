// Package fenceredis is the guard of package fence for Redis with rueidis: commands and scripts
// that the server refuses to run under a stale token.
//
//	g := fenceredis.New(client, nil)
//	err := locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		return g.Set(ctx, "invoice:42", "paid", 0)
//	})
//
// The resource is a key. Its floor is in another key of the same slot: floor:{KEY}, or
// floor:{TAG}:KEY if the key has a hash tag. All writers of the key must use a guard; package
// fencegoredis has the same one for go-redis.
//
// The client must have no ConnLifetime. When the lifetime of a connection ends, rueidis sends
// commands again that have no answer a second later. A slow guarded write would then be executed
// twice, or be executed late and undo what the same holder has written since.
package fenceredis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/fence/internal/redisfloor"
)

// ErrKey means that a floor cannot lie in the slot of a key, such as "a}b", or that the
// keys of a script do not share one. A hash tag helps: "{42}:invoice". A key that is a floor
// itself, such as "floor:{42}", is one too.
var ErrKey = redisfloor.ErrKey

// Config tunes a Guard. The zero value is useful.
type Config struct {
	// Keep is how long a floor is kept after the last guarded write. A floor that is gone
	// lets late writers in, so it must be longer than anybody can be late. 0 means for
	// ever, the default: nobody knows how long a process may be stopped, and a floor takes
	// about 100 bytes.
	Keep time.Duration
}

// Guard writes keys under the fencing token of a context. It is safe for concurrent use.
// Its methods return fence.ErrNoToken without a token and a *fence.StaleError for a stale
// one; the server's own errors are returned as they are. While a slot of a Cluster moves, a
// write waits up to two seconds for the key and its floor to be in one place.
type Guard struct {
	client rueidis.Client
	keep   time.Duration
}

// New returns a guard. It does no I/O; cfg may be nil.
func New(client rueidis.Client, cfg *Config) *Guard {
	g := &Guard{client: client}
	if cfg != nil {
		g.keep = cfg.Keep
	}
	return g
}

// Set stores a value, which expires after ttl, in whole milliseconds, or never if ttl is
// not positive.
func (g *Guard) Set(ctx context.Context, key, value string, ttl time.Duration) error {
	call, err := redisfloor.Command(ctx, g.keep, "SET", key, redisfloor.SetArgs(value, ttl)...)
	return g.exec(ctx, call, err).Error()
}

// HSet sets fields of a hash: name, value, name, value.
func (g *Guard) HSet(ctx context.Context, key string, fields ...string) error {
	call, err := redisfloor.HSet(ctx, g.keep, key, fields)
	return g.exec(ctx, call, err).Error()
}

// Del deletes a key, if it is there. Its floor stays.
func (g *Guard) Del(ctx context.Context, key string) error {
	call, err := redisfloor.Command(ctx, g.keep, "DEL", key)
	return g.exec(ctx, call, err).Error()
}

// Eval runs a Lua script of your own, which writes the resource: a key, whose floor is
// checked and raised before the script runs. The keys must share its slot. The script is
// the body of a function: it begins with no shebang, and sees its own KEYS and ARGV.
func (g *Guard) Eval(ctx context.Context, resource, script string, keys, args []string) rueidis.RedisResult {
	call, err := redisfloor.Script(ctx, g.keep, resource, script, keys, args)
	return g.exec(ctx, call, err)
}

// exec runs the call, unless it could not be made.
func (g *Guard) exec(ctx context.Context, call redisfloor.Call, err error) rueidis.RedisResult {
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	script := rueidis.NewLuaScript(call.Script)
	result := redisfloor.Insist(ctx, func() rueidis.RedisResult {
		return script.Exec(ctx, g.client, call.Keys, call.Args)
	}, rueidis.RedisResult.Error)
	if refused, ok := rueidis.IsRedisErr(result.Error()); ok {
		if err := call.Refused(ctx, refused.Error(), refused); !errors.Is(err, refused) {
			return rueidis.NewErrorResult(err)
		}
	}
	return result
}
