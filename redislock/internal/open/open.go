// Package open lets package goredis make an engine on a connection of its own. The public API of
// redislock has no function for that, because applications have no use for a connection.
package open

// Engine is a func(redisconn.Conn, *redislock.Config) *redislock.Engine, which package
// redislock sets when it is initialized. This package cannot import it.
var Engine any
