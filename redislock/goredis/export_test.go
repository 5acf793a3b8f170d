package goredis

import (
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
)

// NewConn shows the connection that New makes.
func NewConn(client redis.UniversalClient) redislock.Conn { return newConn(client) }
