// Package redlock keeps locks on several independent Redis masters, of which a
// majority decides: a few may be down, frozen or forgetful, and the locks stand.
//
//	var nodes []redlock.Node // one for each master: three, five or seven
//	locks := fencelock.New(redlock.New(nodes, nil), nil)
//
// [Rueidis] makes a node of a client, [NewLazy] one of a master that may be down, and
// package redlock/goredis has New for an application's go-redis clients. Call [Engine.Init]
// once when the servers are new; else they do not vote before MaxTTL has passed.
//
// # What is promised
//
// The algorithm is Redlock (Sanfilippo, 2014), and what is said against it (M.
// Kleppmann, How to do distributed locking, 2016) is answered where it can be,
// and written down where it cannot. There is a fencing token, strictly greater
// for every later acquisition whatever clocks do, as long as nodes remember. A
// node that may have forgotten (it restarted, failed over or was flushed) does
// not vote until every lock it may have granted is over. A holder counts its
// lease from before it asked, by the largest of its clocks, less a margin.
//
// What is left: exclusion trusts that clocks run at nearly the same rate and are
// not stepped on a majority of the nodes while a lock is held. If they are, two
// may believe to hold it, and a guard that checks tokens lets only the later one
// write.
//
// Who waits longest is told first of a release, but that is no promise: others
// may get in before, and requests that share a lock may keep an exclusive one
// waiting. Shared locks have no limit: a majority cannot count holders.
//
// # Nodes that fail
//
// A request returns when a majority has decided. A node that does not answer in
// time is left out, so that it costs no more, and looked after in the background
// until it is back; locks it may have granted meanwhile are freed then. Without
// a majority there is driver.ErrUnavailable with what each node said.
//
// # Living with others
//
// On each node the lock on name is the key lock:<name>; Redlock clients of other
// languages that use that key (SET NX PX, compare-and-delete) exclude this
// engine and are excluded by it. The user of the nodes needs the commands of the
// scripts, INFO among them, and the keys *lock:* and *fencelock:*.
package redlock
