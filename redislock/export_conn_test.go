package redislock

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

// NewRueidisConn shows the connection that New makes.
func NewRueidisConn(client rueidis.Client) Conn { return newRueidis(client) }

// Within shows the contexts of the engine's calls.
func Within(ctx context.Context, d time.Duration) context.Context { return withDeadline(ctx, d) }
