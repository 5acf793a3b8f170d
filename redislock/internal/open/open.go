// Package open lets package goredis make an engine on a connection of its own. The public
// API of redislock has no function for that: a connection is no business of applications.
package open

// Engine is a func(redisconn.Conn, *redislock.Config) *redislock.Engine, which package
// redislock sets when it is initialized. This package cannot import it.
var Engine any
