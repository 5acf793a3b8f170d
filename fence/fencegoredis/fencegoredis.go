// Package fencegoredis is the guard of package fence for Redis with go-redis. The server refuses
// commands and scripts with a stale token.
//
//	g := fencegoredis.New(client, nil)
//	err := locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		return g.Set(ctx, "invoice:42", "paid", 0)
//	})
//
// The resource is a key. Its floor, the lowest token that is still valid, is stored in a second key
// of the same slot: floor:{KEY}, or floor:{TAG}:KEY if the key has a hash tag. All writers of the
// key must use a guard. Package fenceredis has the same guard for rueidis.
//
// Guarded writes are not retried, whatever MaxRetries says: go-redis would send a command again
// after a connection error, although the first one may have been executed, or may be executed later
// and undo a newer write of the same holder. So after a connection error it is unknown whether the
// write was done.
package fencegoredis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

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
	client redis.UniversalClient
	keep   time.Duration
}

var errRing = errors.New("fence: a redis.Ring moves keys between servers and leaves their floors behind: use a redis.Client or a redis.ClusterClient")

// New returns a guard. client may be a *redis.Client or a *redis.ClusterClient. With a *redis.Ring
// all calls fail, since it loses floors when a server fails. New does no I/O. cfg may be nil.
func New(client redis.UniversalClient, cfg *Config) *Guard {
	g := &Guard{client: client}
	if cfg != nil {
		g.keep = cfg.Keep
	}
	return g
}

// Set stores a value. It expires after ttl, in whole milliseconds, or never if ttl is not positive.
func (g *Guard) Set(ctx context.Context, key, value string, ttl time.Duration) error {
	call, err := redisfloor.Command(ctx, g.keep, "SET", key, redisfloor.SetArgs(value, ttl)...)
	return g.exec(ctx, call, err).Err()
}

// HSet sets fields of a hash: name, value, name, value.
func (g *Guard) HSet(ctx context.Context, key string, fields ...string) error {
	call, err := redisfloor.HSet(ctx, g.keep, key, fields)
	return g.exec(ctx, call, err).Err()
}

// Del deletes a key if it exists. Its floor stays.
func (g *Guard) Del(ctx context.Context, key string) error {
	call, err := redisfloor.Command(ctx, g.keep, "DEL", key)
	return g.exec(ctx, call, err).Err()
}

// Eval runs your own Lua script, which writes the key resource. The floor of that key is checked
// and raised before the script runs. All keys must be in its slot. The script is the body of a
// function: it must not start with a shebang, and it has its own KEYS and ARGV.
func (g *Guard) Eval(ctx context.Context, resource, script string, keys, args []string) *redis.Cmd {
	call, err := redisfloor.Script(ctx, g.keep, resource, script, keys, args)
	return g.exec(ctx, call, err)
}

// exec runs the call, unless err is set.
func (g *Guard) exec(ctx context.Context, call redisfloor.Call, err error) *redis.Cmd {
	if _, ring := g.client.(*redis.Ring); ring {
		err = errRing
	}
	if err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	cmd := redisfloor.RetryMoving(ctx, func() *redis.Cmd { return g.run(ctx, call) }, (*redis.Cmd).Err)
	if refused, ok := errors.AsType[redis.Error](cmd.Err()); ok {
		cmd.SetErr(call.Refused(ctx, refused.Error(), cmd.Err()))
	}
	return cmd
}

// run runs the script of a call once.
func (g *Guard) run(ctx context.Context, call redisfloor.Call) *redis.Cmd {
	cmd := g.eval(ctx, "evalsha", redis.NewScript(call.Script).Hash(), call)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return g.eval(ctx, "eval", call.Script, call)
	}
	return cmd
}

// eval sends a script once, by its hash or its source.
func (g *Guard) eval(ctx context.Context, name, script string, call redisfloor.Call) *redis.Cmd {
	args := []any{name, script, len(call.Keys)}
	for _, words := range [][]string{call.Keys, call.Args} {
		for _, word := range words {
			args = append(args, word)
		}
	}
	cmd := redis.NewCmd(ctx, args...)
	_ = g.client.Process(ctx, once{cmd}) // the error is in cmd
	return cmd
}

// once is a command that the client does not send again after it may have reached the server.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis not to retry.
func (once) NoRetry() bool { return true }
