package main

import "time"

const (
	moduleRedsync   = "github.com/go-redsync/redsync/v4"
	moduleRedislock = "github.com/bsm/redislock"
	moduleRueidis   = "github.com/redis/rueidis"
	moduleEtcd      = "go.etcd.io/etcd/client/v3"
	moduleGocron    = "github.com/go-co-op/gocron/v2"
)

// scenarios are the published faults, in the order of the page.
var scenarios = []scenario{
	{
		name: "redsync-cancelled", peer: "redsync", module: moduleRedsync,
		fault:  "with a cancelled context the release is not sent: a key stays until it expires",
		thread: "https://github.com/googleforgames/open-match/issues/1576",
		run:    redsyncCancelled,
	},
	{
		name: "redsync-extend", peer: "redsync", module: moduleRedsync,
		fault:  "with SetNXOnExtend, Extend revives a lock that expired and had another holder since",
		thread: "https://github.com/go-redsync/redsync/pull/149",
		run:    redsyncExtend,
	},
	{
		name: "redsync-hung-node", peer: "redsync", module: moduleRedsync,
		fault:  "one frozen node of three delays every call, although two have answered",
		thread: "https://github.com/go-redsync/redsync/issues/140",
		run:    redsyncHungNode,
	},
	{
		name: "redislock-reply-lost", peer: "bsm/redislock", module: moduleRedislock,
		fault:  "an Obtain that times out leaves its key until it expires",
		thread: "https://github.com/bsm/redislock/issues/27",
		run:    redislockReplyLost,
	},
	{
		name: "redislock-wait", peer: "bsm/redislock", module: moduleRedislock,
		fault:  "without a deadline, Obtain gives up after the TTL, whatever its retry strategy",
		thread: "https://github.com/bsm/redislock/issues/74",
		run:    redislockWait,
	},
	{
		name: "rueidislock-hang", peer: "rueidislock", module: moduleRueidis,
		fault:  "after one late reply, WithContext waits for a lock that nobody holds",
		thread: "https://github.com/redis/rueidis/issues/653",
		run:    rueidislockHang,
	},
	{
		name: "rueidislock-partition", peer: "rueidislock", module: moduleRueidis,
		fault:  "a renewal without an answer may take as long as the lease that it asks for",
		thread: "https://github.com/redis/rueidis/pull/924",
		run:    overlapping("rueidislock", 5*time.Second, partitioned, "fencelock, Redis", 3),
	},
	{
		name: "etcd-partition", peer: "etcd mutex", module: moduleEtcd,
		fault:  "the session of a partitioned holder ends after the next client has the lock",
		thread: "https://github.com/etcd-io/etcd/issues/10811",
		run:    overlapping("etcd mutex", 5*time.Second, partitioned, "fencelock, PostgreSQL", 4),
	},
	{
		name: "etcd-waiter-expired", peer: "etcd mutex", module: moduleEtcd,
		fault:  "a waiter whose session has expired stays blocked in Lock",
		thread: "https://github.com/etcd-io/etcd/issues/19597",
		run:    etcdWaiterExpired,
	},
	{
		name: "etcd-stale-unlock", peer: "etcd mutex", module: moduleEtcd,
		fault:  "a repeated Unlock deletes a newer lock of the same session",
		thread: "https://github.com/etcd-io/etcd/issues/22082",
		run:    etcdStaleUnlock,
	},
	{
		name: "gocron-fast-job", peer: "gocron", module: moduleGocron,
		fault:  "a job that ends before another instance's clock is due runs there again",
		thread: "https://github.com/go-co-op/gocron/issues/841",
		run:    gocronFastJob,
	},
	{
		name: "pglock-partition", peer: "cirello.io/pglock",
		fault:  "a holder whose heartbeats fail keeps its lock",
		thread: "https://github.com/cirello-io/pglock/issues/18",
		run:    overlapping("cirello pglock (rewritten)", 5*time.Second, partitioned, "fencelock, PostgreSQL", 1),
	},
}
