package fencelock

import "github.com/fencelock/fencelock/driver"

// What programs need of package driver, which is for those who write engines.
type (
	// Engine keeps the locks of a Locker, such as the *Engine of package filelock.
	Engine = driver.Engine
	// RateLimiter counts for package ratelimit: most engines do, and so do records.
	RateLimiter = driver.RateLimiter
	// Mode says whom a lock excludes: Exclusive or Shared. Its String is the word.
	Mode = driver.Mode
	// WaitInfo is what an engine knows about an acquisition that waits; see
	// Options.OnWait. Its fields are
	//
	//	Position int        // 1 is next; 0 means unknown
	//	Held     *HeldError // who is in the way; nil means unknown
	//	Trouble  error      // why the engine itself grants nothing now; nil means it works
	WaitInfo = driver.WaitInfo
)

// The modes.
const (
	Exclusive = driver.Exclusive // excludes every other acquisition
	Shared    = driver.Shared    // excludes exclusive ones
)
