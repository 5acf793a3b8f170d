// Package twin is redislock's protocol in Go: what each script returns, publishes and leaves
// behind, for one name. Only tests use it. They run the same calls on both and compare everything,
// so a change of the Lua must be made here, too.
package twin
