// Package redlock implements fencelock's locks on several independent Redis masters with the
// Redlock algorithm. A majority of the masters decides, so locks survive if a minority is down,
// frozen or loses its data.
//
//	var nodes []redlock.Node // one for each master: three, five or seven
//	locks := fencelock.New(redlock.New(nodes, nil), nil)
//
// [Rueidis] makes a node from a client. [NewLazy] makes a node for a master that may be down.
// Package redlock/goredis has a New for go-redis clients. Call [Engine.Init] once when the servers
// are new; otherwise they do not vote until MaxTTL has passed.
//
// # Guarantees
//
// The algorithm is Redlock (Sanfilippo, 2014), extended to answer the objections of M. Kleppmann
// (How to do distributed locking, 2016) where that is possible:
//
//   - Every acquisition gets a fencing token. It is strictly greater than those of all earlier
//     acquisitions, whatever the clocks do, as long as the nodes keep their data.
//   - A node that may have lost its locks (it restarted, failed over or was flushed) does not vote
//     until every lock that it may have granted has expired.
//   - A holder counts its lease from before its request was sent, by the clock that has advanced
//     furthest, less a margin for drift.
//
// Exclusion still requires that clocks run at nearly the same rate, and are not set while a lock is
// held, on a majority of the nodes. Otherwise two clients may both believe that they hold the lock.
// A guard that checks fencing tokens then rejects the writes of the older one.
//
// After a release, the request that has waited longest is notified first, but the order is not
// guaranteed: others may acquire the lock before it, and requests that share a lock may delay an
// exclusive one indefinitely. Shared locks cannot have a limit, because a majority cannot count
// holders.
//
// # Failing nodes
//
// A request returns when a majority has decided. A node that does not answer in time is left out,
// so that it delays no further requests, and is probed in the background until it answers. Locks
// that it may have granted meanwhile are then released. Without a majority, requests return
// driver.ErrUnavailable with the error of each node.
//
// # Other lock libraries
//
// On each node the lock on name is the key lock:<name>. Redlock clients in other languages that use
// this key (SET NX PX, compare-and-delete) exclude this engine and are excluded by it. The Redis
// user needs the commands that the scripts use, including INFO, and access to the keys *lock:* and
// *fencelock:*.
package redlock
