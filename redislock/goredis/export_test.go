package goredis

import (
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/redis/go-redis/v9"
)

// NewConn shows the connection that New makes.
func NewConn(client redis.UniversalClient) redisconn.Conn { return newConn(client) }
