// Package redislock keeps locks on one Redis: a server, a master with replicas
// behind Sentinel, or a Cluster (6.2 or later; Valkey too).
//
//	rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}, ConnWriteTimeout: 3 * time.Second})
//	locks := fencelock.New(redislock.New(rdb, nil), nil)
//
// ConnWriteTimeout bounds for how long the client uses a connection that has become
// silent, on which renewals fail; it is 10 s without, see docs/engines/redis.md.
// Package goredis does the same for an application's own go-redis client.
//
// # What is promised
//
// Leases, first come first served among all clients, shared locks with and
// without a limit, a fencing token on every acquisition. A released lock goes to
// the next waiter in the script that releases it, and a message tells it: one
// round trip, whatever the number of waiters. Waiters that died are skipped at
// no cost, and one that is frozen costs at most two seconds, once.
//
// One Redis can forget: a failover loses what had not reached the replica, a
// restart without persistence loses everything. Two holders are possible then,
// and a guard that checks fencing tokens keeps the later one's data right.
// [Config.Quarantine] closes the hole for the price of a wait.
//
// # Living with others
//
// The lock on name is the key lock:<name>, and programs that lock it with SET NX
// PX and release it by compare-and-delete are excluded by this engine and
// exclude it.
//
// The design follows the queue of MCS locks (Mellor-Crummey and Scott, 1991):
// each waiter is told by whoever goes before it, and nobody polls.
package redislock
