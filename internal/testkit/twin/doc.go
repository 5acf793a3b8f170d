// Package twin implements the protocol of redislock's scripts in Go, for one name: what each script
// returns, publishes and stores. Tests make the same calls on both and compare the results. After a
// change of the Lua scripts, change this package too.
package twin
