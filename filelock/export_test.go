package filelock

import (
	"os"
	"time"
)

// What tests see of the inside.
var (
	Encode      = encode
	MaxEncoded  = maxEncoded
	FlockOwners = flockOwners
)

// SetHook calls fn once a token is durable, before it is returned.
func (e *Engine) SetHook(fn func(token int64)) { e.hook = fn }

// Poll keeps the engine from hearing what other engines do; it must come first.
func (e *Engine) Poll() { e.waker.polls, e.holds.watcher.poll = true, true }

// ParseTicket returns what the file name of a ticket says about its limit.
func ParseTicket(base string) (limit, weight int, ok bool) {
	t, ok := parseTicket(base)
	return t.limit, t.weight, ok
}

// SetFileSystem replaces the answer to what file system a directory is on.
func SetFileSystem(fn func(dir string) (string, bool, error)) (restore func()) {
	old := fileSystem
	fileSystem = func(dir *os.File) (string, bool, error) { return fn(dir.Name()) }
	return func() { fileSystem = old }
}

// SetPass calls fn where others could come in between.
func (e *Engine) SetPass(fn func(what string)) { e.dir.pass, e.dir.perm.pass = fn, fn }

// Sweep removes the names that nobody uses now.
func (e *Engine) Sweep() { e.sweeper.sweep(0) }

// SetListPatience replaces how long a list waits in vain.
func (e *Engine) SetListPatience(limit time.Duration) { e.dir.listing = limit }
