// Package fencegoredis is the guard of package fence for Redis with go-redis: commands and scripts
// that the server refuses to run under a stale token.
//
//	g := fencegoredis.New(client, nil)
//	err := locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		return g.Set(ctx, "invoice:42", "paid", 0)
//	})
//
// The resource is a key. Its floor is in another key of the same slot: floor:{KEY}, or
// floor:{TAG}:KEY if the key has a hash tag. All writers of the key must use a guard; package
// fenceredis has the same one for rueidis.
//
// go-redis repeats a command when the connection fails. For a guarded write this is disabled,
// whatever MaxRetries is: the first one may have been executed, or be executed late and undo what
// the same holder has written since. So after a connection error it is unknown whether a write was
// executed.
package fencegoredis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

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
	client redis.UniversalClient
	keep   time.Duration
}

var errRing = errors.New("fence: a redis.Ring moves keys between servers and leaves their floors behind: use a redis.Client or a redis.ClusterClient")

// New returns a guard. The client may be a *redis.Client or a *redis.ClusterClient; with a
// *redis.Ring all calls fail, since it forgets floors when a server fails. New does no I/O;
// cfg may be nil.
func New(client redis.UniversalClient, cfg *Config) *Guard {
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
	return g.exec(ctx, call, err).Err()
}

// HSet sets fields of a hash: name, value, name, value.
func (g *Guard) HSet(ctx context.Context, key string, fields ...string) error {
	call, err := redisfloor.HSet(ctx, g.keep, key, fields)
	return g.exec(ctx, call, err).Err()
}

// Del deletes a key, if it is there. Its floor stays.
func (g *Guard) Del(ctx context.Context, key string) error {
	call, err := redisfloor.Command(ctx, g.keep, "DEL", key)
	return g.exec(ctx, call, err).Err()
}

// Eval runs a Lua script of your own, which writes the resource: a key, whose floor is
// checked and raised before the script runs. The keys must share its slot. The script is
// the body of a function: it begins with no shebang, and sees its own KEYS and ARGV.
func (g *Guard) Eval(ctx context.Context, resource, script string, keys, args []string) *redis.Cmd {
	call, err := redisfloor.Script(ctx, g.keep, resource, script, keys, args)
	return g.exec(ctx, call, err)
}

// exec runs the call, unless it could not be made.
func (g *Guard) exec(ctx context.Context, call redisfloor.Call, err error) *redis.Cmd {
	if _, ring := g.client.(*redis.Ring); ring {
		err = errRing
	}
	if err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	cmd := redisfloor.Insist(ctx, func() *redis.Cmd { return g.run(ctx, call) }, (*redis.Cmd).Err)
	if refused, ok := errors.AsType[redis.Error](cmd.Err()); ok {
		cmd.SetErr(call.Refused(ctx, refused.Error(), cmd.Err()))
	}
	return cmd
}

// run runs the script of a call, once.
func (g *Guard) run(ctx context.Context, call redisfloor.Call) *redis.Cmd {
	cmd := g.eval(ctx, "evalsha", redis.NewScript(call.Script).Hash(), call)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return g.eval(ctx, "eval", call.Script, call)
	}
	return cmd
}

// eval sends a script, by its hash or its source, once.
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

// A once is a command that the client does not send again after it may have reached the
// server.
type once struct{ *redis.Cmd }

// NoRetry tells the client so.
func (once) NoRetry() bool { return true }
