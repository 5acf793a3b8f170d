// Package open lets package goredis create an engine on its own kind of connection. The public API
// of redislock has no function for that.
package open

// Engine is a func(redisconn.Conn, *redislock.Config) *redislock.Engine. Package redislock sets it
// when it is initialized, because this package cannot import redislock.
var Engine any
