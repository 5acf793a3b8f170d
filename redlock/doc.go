// Package redlock is the engine on several independent Redis masters, of which a majority decides.
// Locks survive as long as a majority of the nodes is up and has kept its data.
//
//	var nodes []redlock.Node // one for each master: three, five or seven
//	locks := fencelock.New(redlock.New(nodes, nil), nil)
//
// [Rueidis] makes a node of a client, and [NewLazy] one of a master that may be down. For an
// application's go-redis clients use package redlock/goredis. Call [Engine.Init] once when the
// servers are new; otherwise they do not vote before MaxTTL has passed.
//
// # What it promises
//
// The algorithm is Redlock (Sanfilippo, 2014), with answers to the criticism of it (M. Kleppmann,
// How to do distributed locking, 2016) where there is one. Every later acquisition has a greater
// fencing token, whatever clocks do, as long as nodes keep their data. A node that may have lost
// data (it restarted, failed over or was flushed) does not vote until every lock it may have
// granted has expired. A holder counts its lease from before it asked, by the largest of its
// clocks, less a margin.
//
// # What it cannot do
//
// Exclusion assumes that clocks run at nearly the same rate, and that the clocks of a majority of
// the nodes are not stepped while a lock is held. Otherwise two holders are possible, and a guard
// that checks tokens lets only the later one write.
//
// There is no order of waiters. A release notifies the one that has waited longest first, but
// others may get in before it, and shared locks may keep an exclusive waiter waiting. Shared locks
// have no limit, because a majority cannot count holders.
//
// # Nodes that fail
//
// A request returns when a majority has decided. A node that does not answer in time is left out,
// so that it costs no more time, and is probed in the background. When it is back, locks that it
// may have granted meanwhile are released. Without a majority the error is driver.ErrUnavailable
// with each node's cause.
//
// # Other programs
//
// On each node the lock on a name is the key lock:NAME. Redlock clients of other languages that use
// this key (SET NX PX, compare-and-delete) exclude this engine and are excluded by it. The user of
// the nodes needs the commands of the scripts, INFO among them, and the keys *lock:* and
// *fencelock:*.
//
// The invariants and the interleavings are in docs/internals/redlock.md.
package redlock
