package redisconn

import "context"

type freshKey struct{}

// Fresh returns a context whose calls use a new connection. It is for a call after one that was not
// answered: a NAT that has dropped idle connections silently leaves the client with a pool of dead
// ones, and the next call from the pool may take another of these. A rueidis client has few
// connections and pings them each second, so only its single calls use a new one.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

// IsFresh reports whether ctx was made by [Fresh].
func IsFresh(ctx context.Context) bool { return ctx.Value(freshKey{}) != nil }
