// Package redislock is the engine on one Redis: a server, a master with replicas behind Sentinel,
// or a Cluster. It needs Redis 6.2 or later, or Valkey.
//
//	rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}, ConnWriteTimeout: 3 * time.Second})
//	locks := fencelock.New(redislock.New(rdb, nil), nil)
//
// Set ConnWriteTimeout: it bounds how long the client uses a connection that does not answer, on
// which renewals fail. The default is 10 s; see docs/engines/redis.md. For an application's own
// go-redis client use package goredis.
//
// # What it promises
//
// Leases, first come first served among all clients, shared locks with and without a limit, and a
// fencing token for every acquisition. The script that releases a lock grants it to the next waiter
// and publishes a message to it, in one round trip, however many wait. Dead waiters are skipped. A
// frozen one delays the others by at most two seconds, once.
//
// # What it cannot do
//
// One Redis can lose data: a failover loses what had not reached the replica, a restart without
// persistence loses everything. Then two holders are possible, and only a guard that checks fencing
// tokens protects the data. With [Config.Quarantine] the server grants nothing after a data loss
// until every earlier lease has expired.
//
// # Other programs
//
// The lock on a name is the key lock:NAME. Programs that lock it with SET NX PX, and release it by
// compare-and-delete, exclude this engine and are excluded by it.
//
// The queue follows MCS locks (Mellor-Crummey and Scott, 1991): each holder notifies its successor,
// and nobody polls. The keys and scripts are in docs/protocol.md, the reasons in
// docs/internals/redis.md.
package redislock
