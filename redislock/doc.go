// Package redislock implements fencelock's locks on one Redis or Valkey: a single server, a master
// with replicas behind Sentinel, or a Cluster. Version 6.2 is the oldest it supports.
//
//	rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}, ConnWriteTimeout: 3 * time.Second})
//	locks := fencelock.New(redislock.New(rdb, nil), nil)
//
// Set ConnWriteTimeout to 3 s: it limits how long the client keeps using a connection that no
// longer answers, during which renewals fail. The default of rueidis is 10 s; see
// docs/engines/redis.md. Package goredis does the same with a go-redis client.
//
// # Guarantees
//
// Locks are leases. Waiters are served first come, first served across all clients. Locks can be
// exclusive, shared, or shared with a limit. Every acquisition gets a fencing token.
//
// The script that releases a lock also grants it to the next waiter and publishes a message to that
// waiter's client. A hand-over therefore takes one round trip, whatever the number of waiters.
// Waiters whose client has died are skipped without delay. A client that is frozen delays the queue
// once, by at most two seconds.
//
// A single Redis can lose locks: a failover loses what had not been replicated, and a restart
// without persistence loses everything. Two holders are then possible, and a guard that checks
// fencing tokens rejects the older one's writes. [Config.Quarantine] prevents the overlap by
// granting nothing until every earlier lease has expired.
//
// # Other lock libraries
//
// The lock on name is stored at the key lock:<name>. Programs that lock that key with SET NX PX and
// release it by compare-and-delete exclude this engine and are excluded by it.
//
// The queue follows the MCS lock (Mellor-Crummey and Scott, 1991): each waiter is notified by its
// predecessor instead of polling.
package redislock
