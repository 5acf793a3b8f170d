// Package goredis makes an engine of package redlock from an application's go-redis clients.
//
//	engine := goredis.New([]redis.UniversalClient{first, second, third}, nil)
//	defer engine.Close()
//	locks := fencelock.New(engine, nil)
//
// Each client belongs to one master, which may be down: go-redis connects on first use. The notes
// on client options in package redislock/goredis also apply here.
package goredis

import (
	"github.com/fencelock/fencelock/internal/goredisconn"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/go-redis/v9"
)

// New returns an engine on the masters behind an application's clients, an odd number of three or
// more. It does no I/O; cfg may be nil. The engine does not close the clients.
func New(clients []redis.UniversalClient, cfg *redlock.Config) *redlock.Engine {
	var nodes []redlock.Node
	for _, client := range clients {
		nodes = append(nodes, redisconn.NodeOf(goredisconn.New(client)))
	}
	return redlock.New(nodes, cfg)
}
