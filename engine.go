package fencelock

import "github.com/fencelock/fencelock/driver"

// The types of package driver that programs need. Package driver itself is for authors of engines.
type (
	// Engine stores the locks of a Locker. The *Engine of package redislock is one.
	Engine = driver.Engine
	// RateLimiter counts the events of package ratelimit. Most engines implement it. For an engine
	// that has only records, ratelimit.OnRecords returns one.
	RateLimiter = driver.RateLimiter
	// Mode says which acquisitions a lock excludes: Exclusive or Shared. String returns the mode as
	// a word.
	Mode = driver.Mode
	// WaitInfo describes a waiting acquisition; see Options.OnWait. Its fields are
	//
	//	Position int        // 1 is next; 0 means unknown
	//	Held     *HeldError // the current holder; nil means unknown
	//	Trouble  error      // why the engine itself grants nothing now; nil if it works
	WaitInfo = driver.WaitInfo
)

// The modes of a lock.
const (
	Exclusive = driver.Exclusive // excludes all other acquisitions
	Shared    = driver.Shared    // excludes exclusive acquisitions
)
