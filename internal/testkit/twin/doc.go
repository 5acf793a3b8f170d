// Package twin is the protocol of redislock's scripts in Go: what each of them
// answers, publishes and leaves behind, for one name. It is for tests alone, which
// run the same calls on both and compare everything. Whoever changes the Lua changes
// the twin, and has written the rule down twice.
package twin
