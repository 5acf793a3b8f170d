// Package twin implements the protocol of redislock's scripts in Go, for one name: what each script
// returns, publishes and stores. Tests run the same calls on both and compare everything. A change
// of the Lua scripts must be made here too, which states the rule a second time.
package twin
