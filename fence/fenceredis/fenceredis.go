// Package fenceredis is the guard of package fence for Redis with rueidis. The server refuses
// commands and scripts with a stale token.
//
//	g := fenceredis.New(client, nil)
//	err := locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		return g.Set(ctx, "invoice:42", "paid", 0)
//	})
//
// The resource is a key. Its floor, the lowest token that is still valid, is stored in a second key
// of the same slot: floor:{KEY}, or floor:{TAG}:KEY if the key has a hash tag. All writers of the
// key must use a guard. Package fencegoredis has the same guard for go-redis.
//
// The client must not set ConnLifetime: when a connection reaches it, rueidis sends commands again
// that had no answer for a second. A slow guarded write could then be executed twice, or late, and
// undo a newer write of the same holder.
package fenceredis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/fence/internal/redisfloor"
)

// Config holds the settings of a Guard. The zero value is ready to use.
type Config struct {
	// Keep is how long a floor is stored after the last guarded write. Without its floor a resource
	// accepts late writes, so Keep must be longer than any process can be paused. 0, the default,
	// means for ever. A floor takes about 100 bytes.
	Keep time.Duration
}

// Guard writes keys with the fencing token of a context. It is safe for concurrent use. Its methods
// return fence.ErrNoToken without a token, a *fence.StaleError for a stale one, and the server's
// own errors unchanged. They return fence.ErrResource if no floor can be stored in the slot of the
// key, such as for "a}b", or the keys of a script are in different slots: use a hash tag,
// "{42}:invoice". A floor, such as "floor:{42}", cannot be guarded either. While a slot of a Cluster is
// moving, a write waits up to two seconds until the key and its floor are on the same node.
type Guard struct {
	client rueidis.Client
	keep   time.Duration
}

// New returns a guard. It does no I/O. cfg may be nil.
func New(client rueidis.Client, cfg *Config) *Guard {
	g := &Guard{client: client}
	if cfg != nil {
		g.keep = cfg.Keep
	}
	return g
}

// Set stores a value. It expires after ttl, in whole milliseconds, or never if ttl is not positive.
func (g *Guard) Set(ctx context.Context, key, value string, ttl time.Duration) error {
	call, err := redisfloor.Command(ctx, g.keep, "SET", key, redisfloor.SetArgs(value, ttl)...)
	return g.exec(ctx, call, err).Error()
}

// HSet sets fields of a hash: name, value, name, value.
func (g *Guard) HSet(ctx context.Context, key string, fields ...string) error {
	call, err := redisfloor.HSet(ctx, g.keep, key, fields)
	return g.exec(ctx, call, err).Error()
}

// Del deletes a key if it exists. Its floor stays.
func (g *Guard) Del(ctx context.Context, key string) error {
	call, err := redisfloor.Command(ctx, g.keep, "DEL", key)
	return g.exec(ctx, call, err).Error()
}

// Eval runs your own Lua script, which writes the key resource. The floor of that key is checked
// and raised before the script runs. All keys must be in its slot. The script is the body of a
// function: it must not start with a shebang, and it has its own KEYS and ARGV.
func (g *Guard) Eval(ctx context.Context, resource, script string, keys, args []string) rueidis.RedisResult {
	call, err := redisfloor.Script(ctx, g.keep, resource, script, keys, args)
	return g.exec(ctx, call, err)
}

// exec runs the call, unless err is set.
func (g *Guard) exec(ctx context.Context, call redisfloor.Call, err error) rueidis.RedisResult {
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	script := rueidis.NewLuaScript(call.Script)
	result := redisfloor.RetryMoving(ctx, func() rueidis.RedisResult {
		return script.Exec(ctx, g.client, call.Keys, call.Args)
	}, rueidis.RedisResult.Error)
	if refused, ok := rueidis.IsRedisErr(result.Error()); ok {
		if err := call.Refused(ctx, refused.Error(), refused); !errors.Is(err, refused) {
			return rueidis.NewErrorResult(err)
		}
	}
	return result
}
